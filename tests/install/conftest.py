"""A control plane per test: installing and uninstalling changes cluster-wide objects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.helm import ensure_helm
from tests.support.volcano import pytest_collection_finish, volcano_build

__all__ = ["pytest_collection_finish", "volcano_build"]


@pytest.fixture
def plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    with ControlPlane.start(control_plane_binaries) as control_plane:
        yield control_plane


@pytest.fixture(scope="session")
def helm() -> Path:
    return ensure_helm()
