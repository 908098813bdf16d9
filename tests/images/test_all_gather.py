"""Workers wait for each other and exchange values, with or without gloo."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Event
from typing import Any

import pytest

from testbed.ports import find_free_ports
from tests.images.programs import WIDE_AND_DEEP, load_module

AllGather = load_module(WIDE_AND_DEEP, "all_gather").AllGather
WORKERS = 3
TIMEOUT_SECONDS = 60


@pytest.fixture
def endpoints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    return [f"127.0.0.1:{port}" for port in find_free_ports(WORKERS)]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(WORKERS + 1) as pool:
        yield pool


@pytest.fixture
def gatherers(endpoints: list[str]) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(AllGather(rank, endpoints))) for rank in range(WORKERS)]


def test_values_arrive_in_rank_order(gatherers: list[Any], threads: ThreadPoolExecutor) -> None:
    for key in ("first", "second"):
        calls = [threads.submit(gatherers[rank].gather, key, f"{key} {rank}") for rank in (2, 0, 1)]
        for each in calls:
            assert each.result(TIMEOUT_SECONDS) == [f"{key} {rank}" for rank in range(WORKERS)]


def test_barrier_waits_for_the_last_worker(gatherers: list[Any], threads: ThreadPoolExecutor) -> None:
    early: list[Future[list[str]]] = [threads.submit(gatherers[rank].gather, "epoch 1") for rank in (0, 1)]
    # Once these two have exchanged another key, worker 0 has their earlier requests.
    others = [threads.submit(all_gather.gather, "other key") for all_gather in gatherers[:2]]
    assert gatherers[2].gather("other key") == [""] * WORKERS
    assert [each.result(TIMEOUT_SECONDS) for each in others] == [[""] * WORKERS] * 2
    assert not any(each.done() for each in early)
    gatherers[2].gather("epoch 1")
    assert [each.result(TIMEOUT_SECONDS) for each in early] == [[""] * WORKERS] * 2


def test_early_worker_waits_for_worker_0(endpoints: list[str], threads: ThreadPoolExecutor) -> None:
    first = [threads.submit(AllGather(rank, endpoints).gather, "start", str(rank)) for rank in (1, 2)]
    with closing(AllGather(0, endpoints)) as all_gather:
        assert all_gather.gather("start", "0") == ["0", "1", "2"]
    assert [each.result(TIMEOUT_SECONDS) for each in first] == [["0", "1", "2"]] * 2


def test_restarted_worker_rejoins(gatherers: list[Any], endpoints: list[str], threads: ThreadPoolExecutor) -> None:
    for each in [threads.submit(all_gather.gather, "start") for all_gather in gatherers]:
        each.result(TIMEOUT_SECONDS)
    assert AllGather(2, endpoints).gather("start") == [""] * WORKERS


FAILING_PROGRAM = """
import threading
from all_gather import AllGather
endpoints = {endpoints}
gatherer = AllGather(0, endpoints)
threading.Thread(target=AllGather(1, endpoints).gather, args=("epoch 1",), daemon=True).start()
while not gatherer._server._values["epoch 1"]:
    pass
raise OSError("no room")
"""


def test_failing_worker_0_exits_while_others_wait(endpoints: list[str]) -> None:
    program = [sys.executable, "-c", FAILING_PROGRAM.format(endpoints=endpoints)]
    result = subprocess.run(
        program, cwd=WIDE_AND_DEEP, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert result.returncode == 1
    assert result.stderr.endswith("OSError: no room\n")


def test_worker_0_exits_last(
    gatherers: list[Any], threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gloo barrier may follow, which holds the GIL: no other worker would get its response."""
    server, answered = gatherers[0]._server, Event()
    mark_answered = server.mark_answered
    monkeypatch.setattr(
        server, "mark_answered", lambda *arguments: answered.wait(TIMEOUT_SECONDS) and mark_answered(*arguments)
    )
    first, *others = [threads.submit(all_gather.gather, "epoch 1") for all_gather in gatherers]
    assert [each.result(TIMEOUT_SECONDS) for each in others] == [[""] * WORKERS] * 2
    with pytest.raises(TimeoutError):
        first.result(timeout=0.2)
    answered.set()
    assert first.result(TIMEOUT_SECONDS) == [""] * WORKERS
