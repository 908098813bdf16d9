"""paddlejob up, down and kubeconfig: the cluster in the background, stopped, killed and started again."""

import asyncio
import subprocess
from pathlib import Path

from testbed.assets import Binaries
from tests.support.paddlejob import (
    STEP_TIMEOUT_SECONDS,
    InProcessPaddlejob,
    Paddlejob,
    find_processes,
    start_cluster,
    wait_no_processes,
)
from tests.support.programs import SLEEP, write_program

HELLO = "print('hello')"


async def test_cluster_stays_up_until_down(process: Paddlejob, tmp_path: Path) -> None:
    assert (await process("up")).code == 0
    assert "already running" in (await process("up")).output
    detached = await process("run", "--detach", *write_program(tmp_path, SLEEP))
    assert detached.output == "tiny created\nfollow it with: paddlejob logs -f tiny\n"
    assert (await process("wait", "tiny", "--timeout", "0")).code == 3
    async with process.start("logs", "-f", "tiny") as following:
        assert following.stdout
        assert await asyncio.wait_for(following.stdout.readline(), STEP_TIMEOUT_SECONDS) == b"worker-0 | started\n"
    assert (await process("down")).output == "the cluster is stopped\n"
    assert find_processes(process.state) == []
    assert (await process("down")).output == "no cluster is running\n"


async def test_detached_run_starts_the_cluster(process: Paddlejob, tmp_path: Path) -> None:
    detached = await process("run", "--detach", *write_program(tmp_path, HELLO))
    assert detached.output.splitlines()[0] == "the cluster keeps running; stop it with paddlejob down"
    assert (await process("wait", "tiny")).code == 0


def test_jobs_of_a_stopped_cluster_continue(paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob = paddlejob_without_cluster
    with start_cluster(paddlejob.state):
        paddlejob("run", "--detach", *write_program(tmp_path, SLEEP))
        paddlejob.wait_phase("tiny", "Running")
    with start_cluster(paddlejob.state):
        outcome = paddlejob("wait", "tiny", "--timeout", "100")
    assert outcome.code == 1, outcome
    assert "tiny-worker-0 exited" in outcome.output


def test_pods_of_a_killed_cluster_are_lost(paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob = paddlejob_without_cluster
    with start_cluster(paddlejob.state) as cluster:
        paddlejob("run", "--detach", *write_program(tmp_path, SLEEP, workers=2))
        paddlejob.wait_phase("tiny", "Running")  # the next cluster would start a pod whose start was not stored
        cluster.kill()
        cluster.wait()
        wait_no_processes(paddlejob.state)
    with start_cluster(paddlejob.state):
        outcome = paddlejob("wait", "tiny", "--timeout", "100")
    assert outcome.code == 1, outcome
    assert "exited 137 (Lost): the local cluster ended while it ran" in outcome.output


def test_job_of_a_killed_cluster_can_be_deleted(paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob = paddlejob_without_cluster
    with start_cluster(paddlejob.state) as cluster:
        paddlejob("run", "--detach", *write_program(tmp_path, SLEEP))
        paddlejob.wait_phase("tiny", "Running")
        cluster.kill()
        cluster.wait()
        assert paddlejob("delete", "tiny").output == "tiny deleted\n"
        assert paddlejob("get").errors == "No PaddleJobs found in namespace default.\n"


def test_purge_deletes_the_state(paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob = paddlejob_without_cluster
    paddlejob("run", *write_program(tmp_path, HELLO))
    assert f"deleted {paddlejob.state}" in paddlejob("down", "--purge").output
    assert not paddlejob.state.exists()


def test_kubeconfig_needs_a_cluster(paddlejob_without_cluster: InProcessPaddlejob) -> None:
    assert paddlejob_without_cluster("kubeconfig").code == 2


def test_kubectl_works_with_the_kubeconfig(
    paddlejob: InProcessPaddlejob, tmp_path: Path, control_plane_binaries: Binaries
) -> None:
    path = paddlejob("kubeconfig").output.strip()
    paddlejob("run", *write_program(tmp_path, HELLO))
    command = [str(control_plane_binaries.kubectl), "--kubeconfig", path, "get", "pdj", "-o", "name"]
    assert subprocess.check_output(command) == b"paddlejob.batch.paddlepaddle.org/tiny\n"
