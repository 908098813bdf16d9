"""The control plane of a test run: built once, started for the first test that uses it, stopped at the end.

Tests that use it are marked `cluster`, so `pytest -m "not cluster"` needs nothing but Python.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from paddle_operator.kube.process import raise_recursion_limit
from testbed.assets import Binaries, ensure_binaries
from testbed.control_plane import ControlPlane
from testbed.request import RequestError
from testbed.toolchain import AssetsError

CLUSTER_FIXTURES = {"control_plane", "control_plane_binaries", "volcano_build"}
CRD_TIMEOUT_SECONDS = 100.0
settings.register_profile("no deadlines", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("no deadlines")  # a busy machine is no failure
BINARIES_KEY = pytest.StashKey[Binaries | AssetsError]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked `long`, too, as make test-all does")


def pytest_configure(config: pytest.Config) -> None:
    raise_recursion_limit()  # as each of our programs does
    config.addinivalue_line("markers", "cluster: needs a real control plane (set where a fixture starts one)")
    config.addinivalue_line("markers", "long: minutes for what a shorter test shows as well; only with --long")
    config.addinivalue_line("markers", "planes(*names): the API servers a story runs on: real (the default), embedded")


@pytest.hookimpl(tryfirst=True)  # before pytest applies -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    deselect_long(config, items)
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if CLUSTER_FIXTURES.intersection(item.fixturenames):
            item.add_marker("cluster")
        if "control_plane" in item.fixturenames:
            item.fixturenames.append("recovery")  # set up last, so torn down first: other fixtures may need servers


def deselect_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test and its timeout: with empty caches it takes minutes."""
    is_needed = any(item.get_closest_marker("cluster") for item in session.items)
    if not is_needed or session.config.option.collectonly:
        return
    with capture_disabled(session.config):
        found = find_binaries(session)
    if isinstance(found, Binaries):
        print_line(session.config, f"control plane: programs from {found.source}")


def find_binaries(session: pytest.Session) -> Binaries | AssetsError:
    """Find or build the programs once per run; an error is stored, too, and fails every test that needs them."""
    if BINARIES_KEY not in session.stash:
        try:
            session.stash[BINARIES_KEY] = ensure_binaries()
        except AssetsError as error:
            session.stash[BINARIES_KEY] = error
    return session.stash[BINARIES_KEY]


@pytest.fixture(scope="session")
def control_plane_binaries(request: pytest.FixtureRequest) -> Binaries:
    """For a test that starts its own control plane. Without programs it fails and does not skip."""
    found = find_binaries(request.session)
    if isinstance(found, AssetsError):
        pytest.fail(str(found), pytrace=False)
    return found


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Binaries, pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """The control plane of this run. Tests share it: use your own namespace and restart what you stop."""
    with ControlPlane.start(control_plane_binaries) as started:
        print_line(pytestconfig, f"control plane: ready after {started.started_in_seconds:.1f} s at {started.server}")
        yield started


@pytest.fixture(scope="session")
def paddlejob_crd(control_plane: ControlPlane) -> None:
    """Apply our CRD and wait until PaddleJobs are served."""
    asyncio.run(_define_paddlejobs(control_plane))


async def _define_paddlejobs(control_plane: ControlPlane) -> None:
    definition = Path(__file__).parent.parent / "deploy/v1/crd.yaml"
    await control_plane.kubectl("apply", f"--filename={definition}")
    async with asyncio.timeout(CRD_TIMEOUT_SECONDS):
        while not await _is_served(control_plane, "paddlejobs"):
            await asyncio.sleep(0.05)


async def _is_served(control_plane: ControlPlane, kind: str) -> bool:
    try:  # not `kubectl wait`, which fails if a condition does not exist yet
        await control_plane.kubectl("get", kind)
    except RequestError:
        return False
    return True


@pytest.fixture
async def recovery(control_plane: ControlPlane) -> AsyncIterator[None]:
    """Restart servers that a test has stopped or killed."""
    yield
    await control_plane.recover()


@pytest.fixture
async def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A new namespace, named after the test; its deletion is started at the end and not awaited."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40].strip("-")
    name = await control_plane.create_namespace(words or "test")
    yield name
    await control_plane.delete_namespace(name)


def print_line(config: pytest.Config, line: str) -> None:
    """Print a line in the output of pytest."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        with capture_disabled(config):
            reporter.ensure_newline()
            reporter.write_line(line)


@contextmanager
def capture_disabled(config: pytest.Config) -> Iterator[None]:
    """Disable output capturing, so that the progress of a build is visible."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        yield
