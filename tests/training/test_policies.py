"""Real Paddle, disturbed while it trains, in jobs that have policies: what is tried again, from where, what is told.

The lives are lived at once on one cluster, since each has a pause of 10 s in it; each test looks at one of them.
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.embedded.overrides import local_images
from paddle_operator.embedded.state import State
from paddle_operator.embedded.target import server_config
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import PODS, Key
from paddle_operator.plan.deadlines import seconds_active
from paddle_operator.plan.job_view import PADDLE_JOBS, job_view
from tests.support.paddlejob import EXAMPLES, Outcome, Paddlejob, find_pod_process, open_paddlejob

# The first test runs all jobs, and may have to install Paddle twice before.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

PATIENCE_SECONDS = 600.0  # all of them together on two cores; alone, each takes a twentieth of it
IMAGES = ("demo-resnet:v1", "demo-wide-and-deep:v1")
STEP = re.compile(r"^(?P<pod>[\w-]+) \| step (?P<step>\d+)/", re.MULTILINE)


@dataclass(frozen=True)
class Life:
    """What was seen of a job: all that `run` printed, the job in the end, and its pods before and after."""

    outcome: Outcome
    job: dict[str, Any]
    before: dict[str, str]  # the UIDs of its pods by name
    after: dict[str, str]

    @property
    def replaced(self) -> set[str]:
        return {name for name, uid in self.after.items() if self.before[name] != uid}

    def condition(self, kind: str) -> dict[str, Any]:
        return next(each for each in self.job["status"]["conditions"] if each["type"] == kind)

    def halves(self, headline: str) -> tuple[Outcome, Outcome]:
        """What was printed before and after the first line that has these words."""
        before, found, after = self.outcome.output.partition(headline)
        assert found, self.outcome.output[-4000:]
        return Outcome(0, before, ""), Outcome(0, after, "")


class Play:
    """One job on the cluster that all share."""

    def __init__(self, paddlejob: Paddlejob, client: Client, name: str) -> None:
        self.paddlejob, self.client, self.name = paddlejob, client, name
        self.before: dict[str, str] = {}

    async def life(self, example: str, *settings: str, disturb: "Disturb | None" = None) -> Life:
        """From `paddlejob run` to its end; disturbed when it trains."""
        changes = [each for setting in settings for each in ("--set", setting)]
        async with self.paddlejob.start("run", EXAMPLES / example, "--name", self.name, *changes) as process:
            assert process.stdout
            assert process.stderr
            errors = asyncio.ensure_future(process.stderr.read())
            printed: list[str] = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                while line := (await process.stdout.readline()).decode():
                    printed.append(line)
                    if disturb and disturb.is_time(line):
                        self.before = await self.uids()
                        await disturb.deed(self)
                        disturb = None
                await process.wait()
            assert process.returncode is not None
            outcome = Outcome(process.returncode, "".join(printed), (await errors).decode())
        return Life(outcome, await self.paddlejob.json(self.name), self.before, await self.uids())

    async def uids(self) -> dict[str, str]:
        pods = await self.client.list_all(PODS, Scope("default"))
        return {pod.key.name: pod.uid for pod in pods if pod.key.name.startswith(f"{self.name}-")}

    async def kill(self, role: str, index: int) -> None:
        job = await self.client.get(PADDLE_JOBS, Key("default", self.name))
        os.kill(find_pod_process(job.uid, role, index), signal.SIGKILL)

    async def limit(self) -> None:
        """A deadline in a few seconds, now that it trains: when it does is up to the machine."""
        job = await self.client.get(PADDLE_JOBS, Key("default", self.name))
        seconds = seconds_active(job_view(job), datetime.now(UTC)) + 5
        deadlines = {"activeDeadlineSeconds": seconds, "startDeadlineSeconds": None}  # which must be less, and is past
        await self.client.merge(PADDLE_JOBS, job.key, {"spec": deadlines})

    async def rest(self) -> None:
        suspended = await self.paddlejob("suspend", self.name)
        assert suspended.code == 0, suspended
        assert await self.uids() == {}
        resumed = await self.paddlejob("resume", self.name, "--no-wait")
        assert resumed.code == 0, resumed


@dataclass(frozen=True)
class Disturb:
    """What happens to a job when one of its pods has come so far."""

    pod: str
    step: int
    deed: Callable[[Play], Any]

    def is_time(self, line: str) -> bool:
        told = STEP.match(line)
        return bool(told and told["pod"] == self.pod and int(told["step"]) >= self.step)


def with_checkpoints(name: str) -> str:
    """A folder of its own on the claim that all have."""
    return f"worker.template.spec.containers.0.env.0.value=/checkpoints/{name}"


def epochs(number: int, *, role: str = "worker", **variables: str) -> str:
    env = [{"name": name, "value": value} for name, value in {"EPOCHS": str(number), **variables}.items()]
    return f"{role}.template.spec.containers.0.env={json.dumps(env)}"


def sharing(folder: Path, number: int) -> list[str]:
    """Settings of a job whose servers write checkpoints to a folder that all pods see."""
    folder.mkdir()
    volumes = json.dumps([{"name": "shared", "hostPath": {"path": str(folder)}}])
    mounts = json.dumps([{"name": "shared", "mountPath": "/shared"}])
    return [
        setting
        for role in ("ps", "worker")
        for setting in (
            f"{role}.template.spec.volumes={volumes}",
            f"{role}.template.spec.containers.0.volumeMounts={mounts}",
            epochs(number, role=role, CHECKPOINT_DIR="/shared"),
        )
    ]


@asynccontextmanager
async def plays(folder: Path) -> AsyncIterator[Callable[[str], Play]]:
    async with open_paddlejob(folder / "state") as paddlejob:
        assert (await paddlejob("up")).code == 0
        cluster = State.find({}, paddlejob.state).running_cluster()
        assert cluster
        async with Client(server_config(cluster)) as client:
            yield lambda name: Play(paddlejob, client, name)


async def all_lives(folder: Path) -> dict[str, Life]:
    images = local_images(State.find(os.environ, folder / "state"))
    await asyncio.gather(*(images.find(name, print) for name in IMAGES))  # so that no life has an installation in it
    async with plays(folder) as play, asyncio.TaskGroup() as group:
        lives = {
            "worker": play("worker").life(
                "retries.yaml",
                "backoffLimit=1",
                with_checkpoints("worker"),
                disturb=Disturb("worker-0", 40, lambda it: it.kill("TRAINER", 1)),
            ),
            "rest": play("rest").life(
                "retries.yaml",
                "backoffLimit=0",
                with_checkpoints("rest"),
                disturb=Disturb("worker-0", 40, lambda it: it.rest()),
            ),
            "server": play("server").life(
                "wide_and_deep.yaml",
                "backoffLimit=1",
                "cleanPodPolicy=Never",
                epochs(6),
                disturb=Disturb("worker-0", 200, lambda it: it.kill("PSERVER", 1)),
            ),
            "alone": play("alone").life(
                "wide_and_deep.yaml",
                "backoffLimit=1",
                "withGloo=0",
                "cleanPodPolicy=Never",
                *sharing(folder / "alone", 6),
                disturb=Disturb("worker-1", 400, lambda it: it.kill("TRAINER", 1)),
            ),
            "chief": play("chief").life("success.yaml", "cleanPodPolicy=Never"),
            "deadline": play("deadline").life(
                "deadlines.yaml",
                epochs(5000),
                disturb=Disturb("worker-0", 10, lambda it: it.limit()),
            ),
        }
        tasks = {name: group.create_task(life) for name, life in lives.items()}
    return {name: task.result() for name, task in tasks.items()}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Life]:
    return asyncio.run(all_lives(tmp_path_factory.mktemp("policies")))


def goes_on(before: Outcome, after: Outcome, pod: str) -> None:
    """The second part starts where a checkpoint was, and where both made a step, with the same loss."""
    first, again = (dict(zip(steps(each, pod), each.losses(pod), strict=True)) for each in (before, after))
    assert 20 < min(again) <= max(first) + 20, (first, again)
    assert max(again) == 256
    both = first.keys() & again.keys()
    assert [again[step] for step in both] == pytest.approx([first[step] for step in both], rel=1e-3)
    assert again[min(again)] < first[10], "it does not begin anew"


def steps(part: Outcome, pod: str) -> list[int]:
    return [int(told["step"]) for told in STEP.finditer(part.output) if told["pod"] == pod]


def test_failed_worker_resumes_from_the_checkpoint(lives: dict[str, Life]) -> None:
    life = lives["worker"]
    assert life.outcome.code == 0, life.outcome
    before, after = life.halves("worker  Restarting: worker-worker-1 exited 137: it was killed; replacing all pods")
    goes_on(before, after, "worker-0")
    assert life.replaced == {"worker-worker-0", "worker-worker-1"}
    assert (life.job["status"]["attempt"], life.job["status"]["restarts"]) == (1, 1)
    assert "tries used: 1 of 1" in life.outcome.output
    results = life.outcome.results
    assert len({each["parameters"] for each in results.values()}) == 1, results
    assert results["worker-0"]["accuracy"] > 0.9


def test_resumed_job_continues_from_the_checkpoint(lives: dict[str, Life]) -> None:
    life = lives["rest"]
    assert life.outcome.code == 0, life.outcome
    before, after = life.halves("rest  Suspended: spec.suspend is true")
    goes_on(before, after, "worker-0")
    assert life.replaced == {"rest-worker-0", "rest-worker-1"}
    assert "restarts" not in life.job["status"], "a rest costs no try, and this job has none"
    # Whatever came between, the same steps were made: to the same digits in all runs that were seen.
    ours, theirs = (lives[name].outcome.results["worker-0"]["loss"] for name in ("rest", "worker"))
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert life.condition("Completed")["message"] == "all 2 workers succeeded"


def test_killed_server_restarts_the_job(lives: dict[str, Life]) -> None:
    life = lives["server"]
    assert life.outcome.code == 0, life.outcome
    assert "server  Restarting: server-ps-1 exited 137: it was killed; replacing all pods" in life.outcome.output
    assert life.replaced == life.after.keys() == {f"server-{each}" for each in ("ps-0", "ps-1", "worker-0", "worker-1")}
    assert (life.job["status"]["attempt"], life.job["status"]["restarts"]) == (1, 1)
    assert life.condition("Completed")["message"] == "all 2 workers succeeded"


def test_killed_worker_is_replaced_alone_without_gloo(lives: dict[str, Life]) -> None:
    life = lives["alone"]
    assert life.outcome.code == 0, life.outcome
    assert "alone-worker-1 exited 137: it was killed; replacing this pod" in life.outcome.output
    assert life.replaced == {"alone-worker-1"}
    assert (life.job["status"].get("attempt", 0), life.job["status"]["restarts"]) == (0, 1)
    before, after = life.halves("alone-worker-1 exited 137")
    assert 0 < steps(after, "worker-1")[0] <= steps(before, "worker-1")[-1], "it goes on with the others"
    results = life.outcome.results
    assert len({each["parameters"] for each in results.values()}) == 1, results


def test_active_deadline_ends_training(lives: dict[str, Life]) -> None:
    life = lives["deadline"]
    assert life.outcome.code == 1, life.outcome
    assert STEP.search(life.outcome.output), "it was training"
    assert life.condition("Failed")["reason"] == "DeadlineExceeded"
    limit = life.job["spec"]["activeDeadlineSeconds"]
    assert f"not finished within spec.activeDeadlineSeconds, which is {limit}" in life.outcome.summary


def test_endless_sidecar_does_not_block_success(lives: dict[str, Life]) -> None:
    life = lives["chief"]
    assert life.outcome.code == 0, life.outcome
    assert "worker-0/heartbeat | still here" in life.outcome.output
    assert life.outcome.results["worker-0"]["accuracy"] > 0.9
    assert life.condition("Completed")["reason"] == "WorkersSucceeded"
