"""A control plane of their own for tests that install and uninstall: what is cluster-wide is theirs alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.helm import helm_program
from tests.support.volcano import pytest_collection_finish, volcano_built

__all__ = ["pytest_collection_finish", "volcano_built"]


@pytest.fixture
def plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    with ControlPlane.start(control_plane_binaries) as started:
        yield started


@pytest.fixture(scope="session")
def helm() -> Path:
    return helm_program()
