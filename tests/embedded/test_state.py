"""The state directory of the embedded cluster, its lock, and its files."""

import fcntl
import stat
import threading
from pathlib import Path

import pytest
import yaml

from paddle_operator.embedded.state import MAX_LOCK_ATTEMPTS, AlreadyRunning, RunningCluster, State

CLUSTER = RunningCluster("http://127.0.0.1:4711", "secret", 42, "https://127.0.0.1:4712", "a certificate")


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.find({"HOME": str(tmp_path)}, tmp_path / "state")


def test_directories_follow_flag_variable_and_xdg() -> None:
    home = {"HOME": "/home/me"}
    assert State.find(home).directory == Path("/home/me/.local/state/paddle-operator")
    assert State.find(home).cache == Path("/home/me/.cache/paddle-operator")
    assert State.find(home | {"XDG_STATE_HOME": "/s"}).directory == Path("/s/paddle-operator")
    assert State.find(home | {"PADDLEJOB_STATE": "/p"}).directory == Path("/p")
    assert State.find(home | {"PADDLEJOB_STATE": "/p"}, Path("/flag")).directory == Path("/flag")


def test_cluster_is_found_only_while_its_lock_is_held(state: State) -> None:
    assert state.running_cluster() is None
    with state.hold_lock():
        assert state.running_cluster() is None, "it accepts no requests yet"
        state.announce(CLUSTER)
        assert state.running_cluster() == CLUSTER
    assert state.running_cluster() is None


def test_file_of_a_killed_cluster_is_ignored(state: State) -> None:
    with state.hold_lock():
        state.announce(CLUSTER)
        left = (state.directory / "cluster.json").read_bytes()
    (state.directory / "cluster.json").write_bytes(left)
    assert state.running_cluster() is None
    assert state.last_cluster() == CLUSTER
    with state.hold_lock():
        assert state.running_cluster() is None, "the file of the killed cluster is deleted"


def test_directory_has_one_cluster_at_a_time(state: State) -> None:
    with (
        state.hold_lock(),
        pytest.raises(AlreadyRunning, match=f"another process runs the cluster of {state.directory}"),
        state.hold_lock(),
    ):
        pass


def test_readers_do_not_keep_a_cluster_from_starting(state: State) -> None:
    with state.hold_lock():
        pass
    with (state.directory / "lock").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        release = threading.Timer(3 * MAX_LOCK_ATTEMPTS * 0.01, fcntl.flock, (reader, fcntl.LOCK_UN))
        release.start()
        with state.hold_lock():
            release.join()


def test_files_with_the_token_are_private(state: State) -> None:
    with state.hold_lock():
        state.announce(CLUSTER)
        for name in ("cluster.json", "last.json", "kubeconfig"):
            assert stat.S_IMODE((state.directory / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(state.directory.stat().st_mode) == 0o700


def test_kubeconfig_names_server_and_token(state: State) -> None:
    with state.hold_lock():
        state.announce(CLUSTER)
    written = yaml.safe_load(state.kubeconfig.read_text())
    assert written["clusters"][0]["cluster"]["server"] == CLUSTER.secure_url
    assert written["users"][0]["user"]["token"] == CLUSTER.token
