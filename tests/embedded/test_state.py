"""Where the embedded cluster keeps what it knows, and whether one runs."""

import fcntl
import stat
import threading
from pathlib import Path

import pytest
import yaml

from paddle_operator.embedded.state import LOOKS, AlreadyRuns, Cluster, State

CLUSTER = Cluster("http://127.0.0.1:4711", "secret", 42, "https://127.0.0.1:4712", "a certificate")


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.of({"HOME": str(tmp_path)}, tmp_path / "state")


def test_the_folders_are_where_the_flag_the_variable_or_the_desktop_says() -> None:
    home = {"HOME": "/home/me"}
    assert State.of(home).folder == Path("/home/me/.local/state/paddle-operator")
    assert State.of(home).cache == Path("/home/me/.cache/paddle-operator")
    assert State.of(home | {"XDG_STATE_HOME": "/s"}).folder == Path("/s/paddle-operator")
    assert State.of(home | {"PADDLEJOB_STATE": "/p"}).folder == Path("/p")
    assert State.of(home | {"PADDLEJOB_STATE": "/p"}, Path("/flag")).folder == Path("/flag")


def test_a_cluster_is_found_only_while_its_process_holds_the_folder(state: State) -> None:
    assert state.running() is None
    with state.held():
        assert state.running() is None, "it does not answer yet"
        state.announce(CLUSTER)
        assert state.running() == CLUSTER
    assert state.running() is None


def test_a_file_that_a_killed_cluster_left_misleads_nobody(state: State) -> None:
    with state.held():
        state.announce(CLUSTER)
        left = (state.folder / "cluster.json").read_bytes()
    (state.folder / "cluster.json").write_bytes(left)
    assert state.running() is None
    assert state.last() == CLUSTER
    with state.held():
        assert state.running() is None, "the killed one is not taken for who has the folder now"


def test_a_folder_has_one_cluster_at_a_time(state: State) -> None:
    with (
        state.held(),
        pytest.raises(AlreadyRuns, match=f"another process has the cluster of {state.folder}"),
        state.held(),
    ):
        pass


def test_whoever_only_looks_for_long_keeps_no_cluster_from_starting(state: State) -> None:
    with state.held():
        pass
    with (state.folder / "lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        leaves = threading.Timer(3 * LOOKS * 0.01, fcntl.flock, (looking, fcntl.LOCK_UN))
        leaves.start()
        with state.held():
            leaves.join()


def test_what_holds_the_token_is_readable_by_its_owner_alone(state: State) -> None:
    with state.held():
        state.announce(CLUSTER)
        for name in ("cluster.json", "last.json", "kubeconfig"):
            assert stat.S_IMODE((state.folder / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700


def test_the_kubeconfig_leads_to_the_cluster(state: State) -> None:
    with state.held():
        state.announce(CLUSTER)
    written = yaml.safe_load(state.kubeconfig.read_text())
    assert written["clusters"][0]["cluster"]["server"] == CLUSTER.secure_url
    assert written["users"][0]["user"]["token"] == CLUSTER.token
