"""An API server with our CRD, hollow nodes and the operator: a real control plane, or the embedded server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.servers import ServerProcess
from testbed.volcano import Volcano
from tests.stories.embedded import open_embedded_harness
from tests.stories.gangs import GangHarness, serve_paddlejobs
from tests.stories.harness import ClusterHarness, RecordingClient
from tests.support.volcano import pytest_collection_finish, volcano, volcano_build

__all__ = ["pytest_collection_finish", "volcano", "volcano_build"]

P100_LABELS = {"accelerator": "nvidia-tesla-p100"}  # as the user guide's nodeSelector wants it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="write tests/stories/golden/ again; then review the diff"
    )


@pytest.fixture
def golden_update(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--golden-update", default=False))


@pytest.fixture(scope="session")
def garbage_collector(control_plane: ControlPlane, paddlejob_crd: None) -> None:
    """Restart it after the CRD: it discovers new kinds only every 30 s and does not collect their children before."""
    asyncio.run(_restart(control_plane.controller_manager))


async def _restart(server: ServerProcess) -> None:
    await server.kill()
    await server.start()
    server.disturbed = False


@pytest.fixture(autouse=True)
def fail_on_logged_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail the story if the operator logs an error: a failed reconcile is retried, so the outcome may be right."""
    yield
    errors = [each for each in caplog.get_records("call") if each.levelno >= logging.ERROR]
    ours = [each for each in errors if each.name.startswith("paddle_operator.")]
    assert [f"{each.name}: {each.getMessage()} {each.exc_info}" for each in ours] == []


@pytest.fixture
def kubelet_speed() -> float:
    """The divisor of kubelet's delays."""
    return 1.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A story runs on a real control plane; `@on_embedded_plane` and `@on_both_planes` say otherwise."""
    if "plane" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("planes")
    planes = marker.args if marker else ("real",)
    marks = {"embedded": (), "real": (pytest.mark.cluster,)}
    metafunc.parametrize("plane", [pytest.param(each, marks=marks[each]) for each in planes], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if isinstance(item, pytest.Function) and callspec and callspec.params.get("plane") == "real":
            # As tests/conftest.py does where a test names the control plane. In a new list: the items of one function
            # share theirs, and with it the embedded one starts a control plane (measured: 12 s).
            item.fixturenames = [*item.fixturenames, "recovery"]


@pytest.fixture
def plane(request: pytest.FixtureRequest) -> str:
    """The API server that the story runs on: real or embedded."""
    return str(request.param)


@pytest.fixture
def bare_harness(plane: str, kubelet_speed: float, request: pytest.FixtureRequest) -> ClusterHarness:
    """Without an operator: a story that starts it at a certain time enters `bare_harness.run_operator()`.

    `kubelet_speed` is named here so that a story can parametrize it.
    """
    harness: ClusterHarness = request.getfixturevalue(f"{plane}_harness")
    return harness


@pytest.fixture
async def real_harness(
    control_plane: ControlPlane, garbage_collector: None, namespace: str, kubelet_speed: float
) -> AsyncIterator[ClusterHarness]:
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=4, gpus=8, labels=P100_LABELS, speed=kubelet_speed) as nodes,
        ClusterHarness(control_plane, client, nodes, namespace).open() as harness,
    ):
        yield harness


@pytest.fixture
async def embedded_harness(tmp_path: Path, kubelet_speed: float) -> AsyncIterator[ClusterHarness]:
    async with open_embedded_harness(tmp_path / "apiserver", labels=P100_LABELS, speed=kubelet_speed) as harness:
        yield harness


@pytest.fixture
async def operator(bare_harness: ClusterHarness) -> AsyncIterator[RecordingClient]:
    async with bare_harness.run_operator() as client:
        yield client


@pytest.fixture
async def harness(bare_harness: ClusterHarness, operator: RecordingClient) -> ClusterHarness:
    return bare_harness


@pytest.fixture(scope="module")
def volcano_with_jobs(volcano: Volcano) -> Volcano:
    """The module's Volcano on a control plane that serves PaddleJobs, too, and whose garbage collector knows both."""
    asyncio.run(serve_paddlejobs(volcano.control_plane))
    return volcano


@pytest.fixture
async def gangs(volcano_with_jobs: Volcano) -> AsyncIterator[GangHarness]:
    """Two nodes of 4 CPUs; without an operator: enter `gangs.run_gang_operator()` for one."""
    control_plane = volcano_with_jobs.control_plane
    namespace = await control_plane.create_namespace("gangs")
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=2, cpu="4") as nodes,
        GangHarness(volcano_with_jobs, control_plane, client, nodes, namespace).open() as harness,
    ):
        yield harness
    await control_plane.delete_namespace(namespace)
