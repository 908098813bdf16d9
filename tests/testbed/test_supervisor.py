"""Servers are terminated however their owner or supervisor ends, shown with small programs in their place."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.servers import ServerProcess, ServerStartError, SupervisorClient

IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
LOGS_SIGTERM = """
import pathlib, signal, sys, time
def log_and_exit(*_):
    with open(sys.argv[1], 'a') as order: order.write(sys.argv[2] + ' ')
    time.sleep(float(sys.argv[3]))
    with open(sys.argv[1], 'a') as order: order.write(sys.argv[2] + '-exited ')
    sys.exit(0)
signal.signal(signal.SIGTERM, log_and_exit)
print('up', flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    """A zombie counts as ended: its parent has not read its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_exited(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


def launch_server(supervision: SupervisorClient, folder: Path, name: str, code: str, *arguments: str) -> ServerProcess:
    """A server of that name that runs Python code and is ready when it has printed `up`."""
    (folder / name).symlink_to(sys.executable)
    log = folder.parent / f"{name}.log"
    server = ServerProcess(supervision, [folder / name, "-c", code, *arguments], log, lambda: "up" in log.read_text())
    server.launch()
    return server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
def supervision(folder: Path) -> Iterator[SupervisorClient]:
    client = SupervisorClient(folder, grace_seconds=0.5)
    yield client
    client.close()


def test_first_server_is_terminated_last(folder: Path, tmp_path: Path) -> None:
    supervision = SupervisorClient(folder, grace_seconds=60)  # long enough that no server is killed
    order = tmp_path / "order"
    for name, pause in (("store", "0"), ("front", "0.2")):
        launch_server(supervision, folder, name, LOGS_SIGTERM, str(order), name, pause).wait_until_ready()
    supervision.close()
    assert order.read_text().split() == ["front", "front-exited", "store", "store-exited"]
    assert not folder.exists()


def test_server_that_ignores_sigterm_is_killed(supervision: SupervisorClient, folder: Path) -> None:
    server = launch_server(supervision, folder, "deaf", IGNORES_SIGTERM)
    server.wait_until_ready()
    supervision.close()
    assert not is_alive(server.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux only")
def test_killed_supervisor_takes_its_servers_along(supervision: SupervisorClient, folder: Path) -> None:
    server = launch_server(supervision, folder, "deaf", IGNORES_SIGTERM)
    server.wait_until_ready()
    os.kill(supervision.pid, signal.SIGKILL)
    wait_exited(server.pid)
    with pytest.raises(ServerStartError, match="start a new one"):
        server.launch()


async def test_killed_server_can_be_restarted(supervision: SupervisorClient, folder: Path) -> None:
    server = launch_server(supervision, folder, "server", IGNORES_SIGTERM)
    server.wait_until_ready()
    before = server.pid
    await server.kill()
    assert not is_alive(before)
    assert server.exit_code == -signal.SIGKILL
    await server.start()
    assert is_alive(server.pid)
    with pytest.raises(ServerStartError, match="server is still running: stop it first"):
        server.launch()


def test_startup_error_quotes_the_log(supervision: SupervisorClient, folder: Path) -> None:
    broken = launch_server(supervision, folder, "broken", "raise SystemExit('no such flag: --fast')")
    with pytest.raises(
        ServerStartError, match=r"broken exited with code 1 before it was ready.*\n.*no such flag: --fast"
    ):
        broken.wait_until_ready()
