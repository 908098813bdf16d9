"""Real Paddle, disturbed while it trains: the job ends with the cause named, and nothing is left running."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.paddlejob import EXAMPLES, STEP_TIMEOUT_SECONDS, Outcome, Paddlejob, find_pod_process, find_processes

pytestmark = pytest.mark.timeout(600)

LONG = ("--set", "worker.template.spec.containers.0.env=[{name: EPOCHS, value: '1000'}]")
TRAINS = b"| step "
PATIENCE_SECONDS = 300.0


@asynccontextmanager
async def training(paddlejob: Paddlejob, yaml: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, at a moment when a worker has made its first steps."""
    async with paddlejob.start("run", EXAMPLES / yaml, *LONG) as process:
        assert process.stdout
        async with asyncio.timeout(PATIENCE_SECONDS):
            while TRAINS not in await process.stdout.readline():
                assert process.returncode is None
        yield process


async def rest_of(process: asyncio.subprocess.Process) -> Outcome:
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode is not None
    return Outcome(process.returncode, output.decode(), errors.decode())


@pytest.mark.parametrize(
    ("yaml", "role", "pod"),
    [
        ("wide_and_deep.yaml", "TRAINER", "worker-1"),
        pytest.param("wide_and_deep.yaml", "PSERVER", "ps-1", marks=pytest.mark.long),
        pytest.param("resnet_cpu.yaml", "TRAINER", "worker-1", marks=pytest.mark.long),
    ],
    ids=["a worker of a PS job", "a server", "a worker of a collective job"],
)
async def test_killed_pod_is_the_root_failure(paddlejob: Paddlejob, yaml: str, role: str, pod: str) -> None:
    async with training(paddlejob, yaml) as process:
        name = yaml_name(yaml)
        uid = (await paddlejob.json(name))["metadata"]["uid"]
        os.kill(find_pod_process(uid, role, 1), signal.SIGKILL)
        outcome = await rest_of(process)
    assert outcome.code == 1, outcome
    assert f"{name}-{pod} exited" in outcome.summary
    assert "it was killed" in outcome.summary
    assert find_processes(paddlejob.state) == []


async def test_killed_cluster_leaves_no_process(
    paddlejob: Paddlejob,
) -> None:
    assert (await paddlejob("up")).code == 0
    async with training(paddlejob, "wide_and_deep.yaml"):
        running = json.loads((paddlejob.state / "cluster.json").read_bytes())
        os.kill(running["pid"], signal.SIGKILL)
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while [pid for pid in find_processes(paddlejob.state) if not is_command(pid)]:
                await asyncio.sleep(0.02)
        assert (await paddlejob("up")).code == 0
        outcome = await paddlejob("wait", yaml_name("wide_and_deep.yaml"), "--timeout", "200")
    assert outcome.code == 1, outcome
    assert "(Lost): the local cluster ended while it ran" in outcome.output


def is_command(pid: int) -> bool:
    """The command that still follows the job: it is ours, and no part of the cluster."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"paddle_operator.cli.main" in file.read()
    except OSError:
        return True  # gone meanwhile


def yaml_name(yaml: str) -> str:
    return {"wide_and_deep.yaml": "wide-ande-deep", "resnet_cpu.yaml": "resnet-cpu"}[yaml]
