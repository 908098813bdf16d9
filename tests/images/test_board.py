"""Workers wait for each other and read each other's notes, with or without gloo."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Event
from typing import Any

import pytest

from testbed.ports import free_ports
from tests.images.programs import WIDE_AND_DEEP, loaded

Board = loaded(WIDE_AND_DEEP, "board").Board
WORKERS = 3
TIMEOUT = 60


@pytest.fixture
def endpoints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    return [f"127.0.0.1:{port}" for port in free_ports(WORKERS)]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(WORKERS + 1) as pool:
        yield pool


@pytest.fixture
def boards(endpoints: list[str]) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Board(rank, endpoints))) for rank in range(WORKERS)]


def test_notes_arrive_in_rank_order(boards: list[Any], threads: ThreadPoolExecutor) -> None:
    for topic in ("first", "second"):
        asked = [threads.submit(boards[rank].notes, topic, f"{topic} {rank}") for rank in (2, 0, 1)]
        for each in asked:
            assert each.result(TIMEOUT) == [f"{topic} {rank}" for rank in range(WORKERS)]


def test_barrier_waits_for_the_last_worker(boards: list[Any], threads: ThreadPoolExecutor) -> None:
    early: list[Future[list[str]]] = [threads.submit(boards[rank].notes, "epoch 1") for rank in (0, 1)]
    # Once these two have met on another topic, what they asked before has long been heard.
    others = [threads.submit(board.notes, "elsewhere") for board in boards[:2]]
    assert boards[2].notes("elsewhere") == [""] * WORKERS
    assert [each.result(TIMEOUT) for each in others] == [[""] * WORKERS] * 2
    assert not any(each.done() for each in early)
    boards[2].notes("epoch 1")
    assert [each.result(TIMEOUT) for each in early] == [[""] * WORKERS] * 2


def test_early_worker_waits_for_worker_0(endpoints: list[str], threads: ThreadPoolExecutor) -> None:
    first = [threads.submit(Board(rank, endpoints).notes, "start", str(rank)) for rank in (1, 2)]
    with closing(Board(0, endpoints)) as board:
        assert board.notes("start", "0") == ["0", "1", "2"]
    assert [each.result(TIMEOUT) for each in first] == [["0", "1", "2"]] * 2


def test_restarted_worker_rejoins(boards: list[Any], endpoints: list[str], threads: ThreadPoolExecutor) -> None:
    for each in [threads.submit(board.notes, "start") for board in boards]:
        each.result(TIMEOUT)
    assert Board(2, endpoints).notes("start") == [""] * WORKERS


FAILS = """
import threading
from board import Board
endpoints = {endpoints}
board = Board(0, endpoints)
threading.Thread(target=Board(1, endpoints).notes, args=("epoch 1",), daemon=True).start()
while not board._server._notes["epoch 1"]:
    pass
raise OSError("no room")
"""


def test_failing_worker_0_exits_while_others_wait(endpoints: list[str]) -> None:
    program = [sys.executable, "-c", FAILS.format(endpoints=endpoints)]
    ended = subprocess.run(program, cwd=WIDE_AND_DEEP, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 1
    assert ended.stderr.endswith("OSError: no room\n")


def test_worker_0_exits_last(boards: list[Any], threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go into a barrier of gloo next, where it holds Python's lock and answers nobody."""
    server, answered = boards[0]._server, Event()
    told = server.told
    monkeypatch.setattr(server, "told", lambda *whom: answered.wait(TIMEOUT) and told(*whom))
    first, *others = [threads.submit(board.notes, "epoch 1") for board in boards]
    assert [each.result(TIMEOUT) for each in others] == [[""] * WORKERS] * 2
    with pytest.raises(TimeoutError):
        first.result(timeout=0.2)
    answered.set()
    assert first.result(TIMEOUT) == [""] * WORKERS
