"""A control plane per test: installing and uninstalling changes cluster-wide objects."""

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
    with ControlPlane.start(control_plane_binaries) as control_plane:
        yield control_plane


@pytest.fixture(scope="session")
def helm() -> Path:
    return helm_program()
