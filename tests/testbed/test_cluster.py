"""`make cluster` leaves one control plane behind, says so the second time, and takes it away again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.assets import Binaries
from testbed.cluster import Cluster

PATHS = os.pathsep.join(filter(None, sys.path))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    yield folder
    if Cluster(folder).serving_pid():
        cluster("down", folder)


def cluster(verb: str, state: Path) -> tuple[str, str]:
    """What it has to say on standard output and on standard error."""
    command = [sys.executable, "-m", "testbed.cluster", verb, str(state)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": PATHS}, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def test_a_cluster_for_hands_is_there_once_until_it_is_ended(state: Path, control_plane_binaries: Binaries) -> None:
    for said in ("is running; end it with: make cluster-down", "the control plane is already there"):
        out, prose = cluster("up", state)
        assert out == f"export KUBECONFIG={state / 'kubeconfig'}\n"
        assert said in prose
    ask = [str(control_plane_binaries.kubectl), f"--kubeconfig={state / 'kubeconfig'}", "get", "namespaces", "-o=name"]
    assert "namespace/default" in subprocess.run(ask, capture_output=True, text=True, check=True).stdout

    assert cluster("down", state) == ("", "the control plane has ended\n")
    assert not state.exists()
    assert cluster("down", state) == ("", "no control plane of this checkout is running\n")
