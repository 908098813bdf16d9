"""The control plane that the tests of a run share: built once, started by the first test that asks, ended with the run.

A test that uses it is marked `cluster`, so that `pytest -m "not cluster"` is the layer that needs nothing but Python.
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
SERVED_WITHIN_SECONDS = 100.0
settings.register_profile("no deadlines", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("no deadlines")  # a busy machine is no failure
FOUND = pytest.StashKey[Binaries | AssetsError]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked `long`, too, as make test-all does")


def pytest_configure(config: pytest.Config) -> None:
    raise_recursion_limit()  # as each of our programs does
    config.addinivalue_line("markers", "cluster: needs a real control plane (set where a fixture starts one)")
    config.addinivalue_line("markers", "long: minutes for what a shorter test shows as well; only with --long")
    config.addinivalue_line("markers", "planes(*names): the API servers a story runs on: real (the default), embedded")


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    deselect_long(config, items)
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if CLUSTER_FIXTURES.intersection(item.fixturenames):
            item.add_marker("cluster")
        if "control_plane" in item.fixturenames:
            item.fixturenames.append("recovery")  # the last to be set up, so the first to end: others may need servers


def deselect_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test, where no timeout of a test counts: with empty caches it takes minutes."""
    asked_for = any(item.get_closest_marker("cluster") for item in session.items)
    if not asked_for or session.config.option.collectonly:
        return
    with uncaptured(session.config):
        found = programs(session)
    if isinstance(found, Binaries):
        say(session.config, f"control plane: programs from {found.source}")


def programs(session: pytest.Session) -> Binaries | AssetsError:
    """Found or built once in a run; what went wrong is kept as well, to be told by every test that needs them."""
    if FOUND not in session.stash:
        try:
            session.stash[FOUND] = ensure_binaries()
        except AssetsError as error:
            session.stash[FOUND] = error
    return session.stash[FOUND]


@pytest.fixture(scope="session")
def control_plane_binaries(request: pytest.FixtureRequest) -> Binaries:
    """For a test that starts a control plane of its own. Fails if there are no programs: it does not skip."""
    found = programs(request.session)
    if isinstance(found, AssetsError):
        pytest.fail(str(found), pytrace=False)
    return found


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Binaries, pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """The one of this run. Tests share it: stay in your namespace, and leave it running if you stop a part of it."""
    with ControlPlane.start(control_plane_binaries) as started:
        say(pytestconfig, f"control plane: ready after {started.started_in_seconds:.1f} s at {started.server}")
        yield started


@pytest.fixture(scope="session")
def paddlejob_crd(control_plane: ControlPlane) -> None:
    """PaddleJobs are served, by the definition that users apply."""
    asyncio.run(_define_paddlejobs(control_plane))


async def _define_paddlejobs(control_plane: ControlPlane) -> None:
    definition = Path(__file__).parent.parent / "deploy/v1/crd.yaml"
    await control_plane.kubectl("apply", f"--filename={definition}")
    async with asyncio.timeout(SERVED_WITHIN_SECONDS):
        while not await _is_served(control_plane, "paddlejobs"):
            await asyncio.sleep(0.05)


async def _is_served(control_plane: ControlPlane, kind: str) -> bool:
    try:  # not `kubectl wait`, which gives up where a condition is not there yet
        await control_plane.kubectl("get", kind)
    except RequestError:
        return False
    return True


@pytest.fixture
async def recovery(control_plane: ControlPlane) -> AsyncIterator[None]:
    """A test that ends with a server stopped or killed, by intention or not, does not harm the next one."""
    yield
    await control_plane.recover()


@pytest.fixture
async def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A fresh namespace, named after the test; its deletion is begun at the end and not waited for."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40].strip("-")
    name = await control_plane.create_namespace(words or "test")
    yield name
    await control_plane.delete_namespace(name)


def say(config: pytest.Config, sentence: str) -> None:
    """A line in pytest's own output, on a line of its own."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        with uncaptured(config):
            reporter.ensure_newline()
            reporter.write_line(sentence)


@contextmanager
def uncaptured(config: pytest.Config) -> Iterator[None]:
    """Let what is written reach the terminal: who waits for a build wants to see it move."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        yield
