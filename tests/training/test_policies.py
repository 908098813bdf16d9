"""Real Paddle jobs with policies, disturbed while they train: what is retried, from which step, and what is reported.

All jobs run concurrently on one cluster, since each contains a back-off of 10 s; each test checks one of them.
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

# The first test runs all jobs and may have to install two versions of Paddle.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

RUN_TIMEOUT_SECONDS = 600.0  # all jobs at once on two cores; alone, each takes a twentieth of it
IMAGES = ("demo-resnet:v1", "demo-wide-and-deep:v1")
STEP = re.compile(r"^(?P<pod>[\w-]+) \| step (?P<step>\d+)/", re.MULTILINE)


@dataclass(frozen=True)
class JobRun:
    """A finished run: the output of `paddlejob run`, the final job, and its pods before and after the disturbance."""

    outcome: Outcome
    job: dict[str, Any]
    pods_before: dict[str, str]  # UIDs by name
    pods_after: dict[str, str]

    @property
    def replaced_pods(self) -> set[str]:
        return {name for name, uid in self.pods_after.items() if self.pods_before[name] != uid}

    def condition(self, condition_type: str) -> dict[str, Any]:
        return next(each for each in self.job["status"]["conditions"] if each["type"] == condition_type)

    def split_output(self, text: str) -> tuple[Outcome, Outcome]:
        """The output before and after the first occurrence of a text."""
        before, separator, after = self.outcome.output.partition(text)
        assert separator, self.outcome.output[-4000:]
        return Outcome(0, before, ""), Outcome(0, after, "")


class Scenario:
    """One job on the shared cluster, and the actions that disturb it."""

    def __init__(self, paddlejob: Paddlejob, client: Client, name: str) -> None:
        self.paddlejob, self.client, self.name = paddlejob, client, name
        self.pods_before: dict[str, str] = {}

    async def run(self, example: str, *settings: str, disturbance: "Disturbance | None" = None) -> JobRun:
        """Run the job with `paddlejob run` to its end; disturb it when the disturbance is due."""
        options = [each for setting in settings for each in ("--set", setting)]
        async with self.paddlejob.start("run", EXAMPLES / example, "--name", self.name, *options) as process:
            assert process.stdout
            assert process.stderr
            errors = asyncio.ensure_future(process.stderr.read())
            printed: list[str] = []
            async with asyncio.timeout(RUN_TIMEOUT_SECONDS):
                while line := (await process.stdout.readline()).decode():
                    printed.append(line)
                    if disturbance and disturbance.is_due(line):
                        self.pods_before = await self.uids()
                        await disturbance.action(self)
                        disturbance = None
                await process.wait()
            assert process.returncode is not None
            outcome = Outcome(process.returncode, "".join(printed), (await errors).decode())
        return JobRun(outcome, await self.paddlejob.json(self.name), self.pods_before, await self.uids())

    async def uids(self) -> dict[str, str]:
        pods = await self.client.list_all(PODS, Scope("default"))
        return {pod.key.name: pod.uid for pod in pods if pod.key.name.startswith(f"{self.name}-")}

    async def kill(self, role: str, index: int) -> None:
        job = await self.client.get(PADDLE_JOBS, Key("default", self.name))
        os.kill(find_pod_process(job.uid, role, index), signal.SIGKILL)

    async def set_deadline(self) -> None:
        """Let the job exceed its deadline in 5 s; when training begins depends on the machine."""
        job = await self.client.get(PADDLE_JOBS, Key("default", self.name))
        seconds = seconds_active(job_view(job), datetime.now(UTC)) + 5
        # The start deadline must be shorter than the active one; it is over, so it is removed.
        deadlines = {"activeDeadlineSeconds": seconds, "startDeadlineSeconds": None}
        await self.client.merge(PADDLE_JOBS, job.key, {"spec": deadlines})

    async def suspend_and_resume(self) -> None:
        suspended = await self.paddlejob("suspend", self.name)
        assert suspended.code == 0, suspended
        assert await self.uids() == {}
        resumed = await self.paddlejob("resume", self.name, "--no-wait")
        assert resumed.code == 0, resumed


@dataclass(frozen=True)
class Disturbance:
    """An action on a job, due when one of its pods reports a step."""

    pod: str
    step: int
    action: Callable[[Scenario], Any]

    def is_due(self, line: str) -> bool:
        match = STEP.match(line)
        return bool(match and match["pod"] == self.pod and int(match["step"]) >= self.step)


def checkpoint_dir_setting(name: str) -> str:
    """A setting: the job's own directory on the shared volume."""
    return f"worker.template.spec.containers.0.env.0.value=/checkpoints/{name}"


def epochs_setting(number: int, *, role: str = "worker", **variables: str) -> str:
    env = [{"name": name, "value": value} for name, value in {"EPOCHS": str(number), **variables}.items()]
    return f"{role}.template.spec.containers.0.env={json.dumps(env)}"


def checkpoint_settings(folder: Path, number: int) -> list[str]:
    """Settings of a PS job with checkpoints in a directory that all pods mount."""
    folder.mkdir()
    volumes = json.dumps([{"name": "shared", "hostPath": {"path": str(folder)}}])
    mounts = json.dumps([{"name": "shared", "mountPath": "/shared"}])
    return [
        setting
        for role in ("ps", "worker")
        for setting in (
            f"{role}.template.spec.volumes={volumes}",
            f"{role}.template.spec.containers.0.volumeMounts={mounts}",
            epochs_setting(number, role=role, CHECKPOINT_DIR="/shared"),
        )
    ]


@asynccontextmanager
async def open_scenarios(folder: Path) -> AsyncIterator[Callable[[str], Scenario]]:
    async with open_paddlejob(folder / "state") as paddlejob:
        assert (await paddlejob("up")).code == 0
        cluster = State.find({}, paddlejob.state).running_cluster()
        assert cluster
        async with Client(server_config(cluster)) as client:
            yield lambda name: Scenario(paddlejob, client, name)


async def run_scenarios(folder: Path) -> dict[str, JobRun]:
    images = local_images(State.find(os.environ, folder / "state"))
    await asyncio.gather(*(images.find(name, print) for name in IMAGES))  # so that no run includes an installation
    async with open_scenarios(folder) as scenario, asyncio.TaskGroup() as group:
        runs = {
            "worker": scenario("worker").run(
                "retries.yaml",
                "backoffLimit=1",
                checkpoint_dir_setting("worker"),
                disturbance=Disturbance("worker-0", 40, lambda scenario: scenario.kill("TRAINER", 1)),
            ),
            "suspend": scenario("suspend").run(
                "retries.yaml",
                "backoffLimit=0",
                checkpoint_dir_setting("suspend"),
                disturbance=Disturbance("worker-0", 40, lambda scenario: scenario.suspend_and_resume()),
            ),
            "server": scenario("server").run(
                "wide_and_deep.yaml",
                "backoffLimit=1",
                "cleanPodPolicy=Never",
                epochs_setting(6),
                disturbance=Disturbance("worker-0", 200, lambda scenario: scenario.kill("PSERVER", 1)),
            ),
            "alone": scenario("alone").run(
                "wide_and_deep.yaml",
                "backoffLimit=1",
                "withGloo=0",
                "cleanPodPolicy=Never",
                *checkpoint_settings(folder / "alone", 6),
                disturbance=Disturbance("worker-1", 400, lambda scenario: scenario.kill("TRAINER", 1)),
            ),
            "chief": scenario("chief").run("success.yaml", "cleanPodPolicy=Never"),
            "deadline": scenario("deadline").run(
                "deadlines.yaml",
                epochs_setting(5000),
                disturbance=Disturbance("worker-0", 10, lambda scenario: scenario.set_deadline()),
            ),
        }
        tasks = {name: group.create_task(run) for name, run in runs.items()}
    return {name: task.result() for name, task in tasks.items()}


@pytest.fixture(scope="module")
def job_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobRun]:
    return asyncio.run(run_scenarios(tmp_path_factory.mktemp("policies")))


def assert_resumed(before: Outcome, after: Outcome, pod: str) -> None:
    """The second part starts at a checkpoint, and steps made in both parts have the same loss."""
    first, second = (dict(zip(reported_steps(each, pod), each.losses(pod), strict=True)) for each in (before, after))
    assert 20 < min(second) <= max(first) + 20, (first, second)
    assert max(second) == 256
    both = first.keys() & second.keys()
    assert [second[step] for step in both] == pytest.approx([first[step] for step in both], rel=1e-3)
    assert second[min(second)] < first[10], "it started from scratch"


def reported_steps(part: Outcome, pod: str) -> list[int]:
    return [int(match["step"]) for match in STEP.finditer(part.output) if match["pod"] == pod]


def test_failed_worker_resumes_from_the_checkpoint(job_runs: dict[str, JobRun]) -> None:
    run = job_runs["worker"]
    assert run.outcome.code == 0, run.outcome
    before, after = run.split_output(
        "worker  Restarting: worker-worker-1 exited 137: it was killed; replacing all pods"
    )
    assert_resumed(before, after, "worker-0")
    assert run.replaced_pods == {"worker-worker-0", "worker-worker-1"}
    assert (run.job["status"]["attempt"], run.job["status"]["restarts"]) == (1, 1)
    assert "retries used: 1 of 1" in run.outcome.output
    results = run.outcome.results
    assert len({each["parameters"] for each in results.values()}) == 1, results
    assert results["worker-0"]["accuracy"] > 0.9


def test_resumed_job_continues_from_the_checkpoint(job_runs: dict[str, JobRun]) -> None:
    run = job_runs["suspend"]
    assert run.outcome.code == 0, run.outcome
    before, after = run.split_output("suspend  Suspended: spec.suspend is true")
    assert_resumed(before, after, "worker-0")
    assert run.replaced_pods == {"suspend-worker-0", "suspend-worker-1"}
    assert "restarts" not in run.job["status"], "suspension must not count as a restart; backoffLimit is 0"
    # Both jobs made the same steps despite the interruption: equal to all digits in every run so far.
    suspended, restarted = (job_runs[name].outcome.results["worker-0"]["loss"] for name in ("suspend", "worker"))
    assert suspended == pytest.approx(restarted, rel=1e-3)
    assert run.condition("Completed")["message"] == "all 2 workers succeeded"


def test_killed_server_restarts_the_job(job_runs: dict[str, JobRun]) -> None:
    run = job_runs["server"]
    assert run.outcome.code == 0, run.outcome
    assert "server  Restarting: server-ps-1 exited 137: it was killed; replacing all pods" in run.outcome.output
    assert (
        run.replaced_pods
        == run.pods_after.keys()
        == {f"server-{each}" for each in ("ps-0", "ps-1", "worker-0", "worker-1")}
    )
    assert (run.job["status"]["attempt"], run.job["status"]["restarts"]) == (1, 1)
    assert run.condition("Completed")["message"] == "all 2 workers succeeded"


def test_killed_worker_is_replaced_alone_without_gloo(job_runs: dict[str, JobRun]) -> None:
    run = job_runs["alone"]
    assert run.outcome.code == 0, run.outcome
    assert "alone-worker-1 exited 137: it was killed; replacing this pod" in run.outcome.output
    assert run.replaced_pods == {"alone-worker-1"}
    assert (run.job["status"].get("attempt", 0), run.job["status"]["restarts"]) == (0, 1)
    before, after = run.split_output("alone-worker-1 exited 137")
    assert 0 < reported_steps(after, "worker-1")[0] <= reported_steps(before, "worker-1")[-1], (
        "it must continue with the others"
    )
    results = run.outcome.results
    assert len({each["parameters"] for each in results.values()}) == 1, results


def test_active_deadline_ends_training(job_runs: dict[str, JobRun]) -> None:
    run = job_runs["deadline"]
    assert run.outcome.code == 1, run.outcome
    assert STEP.search(run.outcome.output), "no step was reported before the deadline"
    assert run.condition("Failed")["reason"] == "DeadlineExceeded"
    limit = run.job["spec"]["activeDeadlineSeconds"]
    assert f"not finished within spec.activeDeadlineSeconds, which is {limit}" in run.outcome.summary


def test_endless_sidecar_does_not_block_success(job_runs: dict[str, JobRun]) -> None:
    run = job_runs["chief"]
    assert run.outcome.code == 0, run.outcome
    assert "worker-0/heartbeat | still here" in run.outcome.output
    assert run.outcome.results["worker-0"]["accuracy"] > 0.9
    assert run.condition("Completed")["reason"] == "WorkersSucceeded"
