"""Whoever dies, and however, the servers end: tried on small programs that stand in for them."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.servers import Server, StartError, Supervision

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
LAST_WORDS = """
import pathlib, signal, sys, time
def leave(*_):
    with open(sys.argv[1], 'a') as order: order.write(sys.argv[2] + ' ')
    time.sleep(float(sys.argv[3]))
    with open(sys.argv[1], 'a') as order: order.write(sys.argv[2] + '-gone ')
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print('up', flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """A zombie has ended: only its parent has not asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def a_server(supervision: Supervision, folder: Path, name: str, code: str, *arguments: str) -> Server:
    """A server of that name that runs some Python, ready when it has printed up."""
    (folder / name).symlink_to(sys.executable)
    log = folder.parent / f"{name}.log"
    server = Server(supervision, [folder / name, "-c", code, *arguments], log, lambda: "up" in log.read_text())
    server.launch()
    return server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


@pytest.fixture
def supervision(folder: Path) -> Iterator[Supervision]:
    begun = Supervision(folder, grace_seconds=0.5)
    yield begun
    begun.close()


def test_the_first_server_ends_when_all_others_have(folder: Path, tmp_path: Path) -> None:
    supervision = Supervision(folder, grace_seconds=60)  # nobody is killed before it has said its last words
    order = tmp_path / "order"
    for name, pause in (("store", "0"), ("front", "0.2")):
        a_server(supervision, folder, name, LAST_WORDS, str(order), name, pause).wait_until_ready()
    supervision.close()
    assert order.read_text().split() == ["front", "front-gone", "store", "store-gone"]
    assert not folder.exists()


def test_a_server_that_does_not_listen_is_killed(supervision: Supervision, folder: Path) -> None:
    deaf = a_server(supervision, folder, "deaf", DEAF)
    deaf.wait_until_ready()
    supervision.close()
    assert not alive(deaf.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_a_supervisor_that_is_killed_takes_its_servers_along(supervision: Supervision, folder: Path) -> None:
    deaf = a_server(supervision, folder, "deaf", DEAF)
    deaf.wait_until_ready()
    os.kill(supervision.pid, signal.SIGKILL)
    wait_until_gone(deaf.pid)
    with pytest.raises(StartError, match="start a new one"):
        deaf.launch()


async def test_a_server_can_be_killed_and_started_again(supervision: Supervision, folder: Path) -> None:
    server = a_server(supervision, folder, "server", DEAF)
    server.wait_until_ready()
    before = server.pid
    await server.kill()
    assert not alive(before)
    assert server.exit_code == -signal.SIGKILL
    await server.start()
    assert alive(server.pid)
    with pytest.raises(StartError, match="server is still running: stop it first"):
        server.launch()


def test_a_server_that_exits_is_reported_with_its_last_words(supervision: Supervision, folder: Path) -> None:
    broken = a_server(supervision, folder, "broken", "raise SystemExit('no such flag: --fast')")
    with pytest.raises(StartError, match=r"broken exited with code 1 before it was ready.*\n.*no such flag: --fast"):
        broken.wait_until_ready()
