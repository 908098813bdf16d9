"""Kill processes of real Paddle jobs: the status names the root failure, and no process is left running."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.paddlejob import EXAMPLES, STEP_TIMEOUT_SECONDS, Outcome, Paddlejob, find_pod_process, find_processes

pytestmark = pytest.mark.timeout(600)

MANY_EPOCHS = ("--set", "worker.template.spec.containers.0.env=[{name: EPOCHS, value: '1000'}]")
STEP_OUTPUT = b"| step "
JOB_NAMES = {"wide_and_deep.yaml": "wide-ande-deep", "resnet_cpu.yaml": "resnet-cpu"}
TRAINING_TIMEOUT_SECONDS = 300.0


@asynccontextmanager
async def start_training(paddlejob: Paddlejob, yaml: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a job and yield its command as soon as a worker has reported a step."""
    async with paddlejob.start("run", EXAMPLES / yaml, *MANY_EPOCHS) as process:
        assert process.stdout
        async with asyncio.timeout(TRAINING_TIMEOUT_SECONDS):
            while STEP_OUTPUT not in await process.stdout.readline():
                assert process.returncode is None
        yield process


async def wait_outcome(process: asyncio.subprocess.Process) -> Outcome:
    output, errors = await asyncio.wait_for(process.communicate(), TRAINING_TIMEOUT_SECONDS)
    assert process.returncode is not None
    return Outcome(process.returncode, output.decode(), errors.decode())


@pytest.mark.parametrize(
    ("yaml", "role", "pod"),
    [
        ("wide_and_deep.yaml", "TRAINER", "worker-1"),
        pytest.param("wide_and_deep.yaml", "PSERVER", "ps-1", marks=pytest.mark.long),
        pytest.param("resnet_cpu.yaml", "TRAINER", "worker-1", marks=pytest.mark.long),
    ],
    ids=["PS worker", "PS server", "collective worker"],
)
async def test_killed_pod_is_the_root_failure(paddlejob: Paddlejob, yaml: str, role: str, pod: str) -> None:
    async with start_training(paddlejob, yaml) as process:
        name = JOB_NAMES[yaml]
        uid = (await paddlejob.json(name))["metadata"]["uid"]
        os.kill(find_pod_process(uid, role, 1), signal.SIGKILL)
        outcome = await wait_outcome(process)
    assert outcome.code == 1, outcome
    assert f"{name}-{pod} exited" in outcome.summary
    assert "it was killed" in outcome.summary
    assert find_processes(paddlejob.state) == []


async def test_killed_cluster_leaves_no_process(paddlejob: Paddlejob) -> None:
    assert (await paddlejob("up")).code == 0
    async with start_training(paddlejob, "wide_and_deep.yaml"):
        cluster = json.loads((paddlejob.state / "cluster.json").read_bytes())
        os.kill(cluster["pid"], signal.SIGKILL)
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while [pid for pid in find_processes(paddlejob.state) if not is_client_process(pid)]:
                await asyncio.sleep(0.02)
        assert (await paddlejob("up")).code == 0
        outcome = await paddlejob("wait", JOB_NAMES["wide_and_deep.yaml"], "--timeout", "200")
    assert outcome.code == 1, outcome
    assert "(Lost): the local cluster ended while it ran" in outcome.output


def is_client_process(pid: int) -> bool:
    """Whether it is the command that still watches the job, which is not part of the cluster."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"paddle_operator.cli.main" in file.read()
    except OSError:
        return True  # it has exited meanwhile
