"""`make cluster` starts one control plane in the background, and `make cluster-down` stops it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.assets import Binaries
from testbed.cluster import BackgroundCluster

PATHS = os.pathsep.join(filter(None, sys.path))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    yield folder
    if BackgroundCluster(folder).serving_pid():
        run_cluster("down", folder)


def run_cluster(verb: str, state: Path) -> tuple[str, str]:
    """Run the command; returns standard output and standard error."""
    command = [sys.executable, "-m", "testbed.cluster", verb, str(state)]
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": PATHS}, capture_output=True, text=True, check=True
    )
    return result.stdout, result.stderr


def test_cluster_is_started_once_and_stopped(state: Path, control_plane_binaries: Binaries) -> None:
    for message in ("is running; stop it with: make cluster-down", "the control plane is already running"):
        out, errors = run_cluster("up", state)
        assert out == f"export KUBECONFIG={state / 'kubeconfig'}\n"
        assert message in errors
    command = [
        str(control_plane_binaries.kubectl),
        f"--kubeconfig={state / 'kubeconfig'}",
        "get",
        "namespaces",
        "-o=name",
    ]
    assert "namespace/default" in subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert run_cluster("down", state) == ("", "the control plane has stopped\n")
    assert not state.exists()
    assert run_cluster("down", state) == ("", "no control plane of this checkout is running\n")
