"""The command in this process, with a cluster in the background or without one, and as a process of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.paddlejob import (
    InProcessPaddlejob,
    Paddlejob,
    open_paddlejob,
    start_cluster,
    wait_no_processes,
)


@pytest.fixture(scope="session")
def cluster_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory of one cluster that serves all tests: each deletes its jobs."""
    state = tmp_path_factory.mktemp("cluster") / "state"
    with start_cluster(state):
        yield state


@pytest.fixture
def paddlejob(
    cluster_state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[InProcessPaddlejob]:
    """The command on the cluster of all tests."""
    command = InProcessPaddlejob(cluster_state, capsys, monkeypatch)
    yield command
    outcome = command("delete", "--all")
    assert outcome.code == 0, outcome


@pytest.fixture
def paddlejob_without_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[InProcessPaddlejob]:
    """The command on an empty state directory; a process that outlives a command fails the test."""
    state = tmp_path / "state"
    yield InProcessPaddlejob(state, capsys, monkeypatch)
    wait_no_processes(state)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Paddlejob]:
    """The command as a process, on an empty state directory."""
    async with open_paddlejob(tmp_path / "state") as command:
        yield command
