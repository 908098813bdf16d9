"""Fixtures of a real Volcano per module, on its own control plane: pods of other tests would be load for it.

A conftest imports these names. Volcano is built before the first test and its timeout.
"""

from collections.abc import Iterator
from contextlib import nullcontext, suppress

import pytest

from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.toolchain import AssetsError
from testbed.volcano import Volcano
from testbed.volcano_assets import VolcanoPrograms, ensure_volcano


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build it with visible progress if a selected test needs it: that takes minutes."""
    asked_for = any(
        isinstance(item, pytest.Function) and "volcano_build" in item.fixturenames for item in session.items
    )
    if not asked_for or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext(), suppress(AssetsError):
        ensure_volcano()  # an error fails every test that needs it


@pytest.fixture(scope="session")
def volcano_build() -> VolcanoPrograms:
    """For a test that starts its own Volcano. Without a build it fails and does not skip."""
    try:
        return ensure_volcano()
    except AssetsError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def volcano(control_plane_binaries: Binaries, volcano_build: VolcanoPrograms) -> Iterator[Volcano]:
    """The Volcano of this module; its control plane has neither nodes nor PaddleJobs."""
    with ControlPlane.start(control_plane_binaries) as control_plane, Volcano.start(control_plane, volcano_build) as it:
        yield it
