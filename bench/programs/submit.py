"""Submits the jobs of a load, waits until all have succeeded, then until all their pods are deleted.

With `every_seconds`, small jobs of two pods follow one by one until the load is done.
"""

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.jobs import Shape, make_job
from bench.program import Options, ParentProcess, make_client, print_figures, run, run_concurrently
from paddle_operator.api.paddlejob import Phase
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import PODS, Key, Manifest, Object, Resource
from paddle_operator.plan.job_view import PADDLE_JOBS

SMALL = Shape(jobs=1, workers=1, servers=1)
SMALL_PREFIX, LARGE_PREFIX = "small", "train"
POLL_SECONDS = 0.5


class Submit(Options, frozen=True, kw_only=True):
    shape: Shape
    every_seconds: float | None
    policies: dict[str, Any] | None = None  # further fields of the large jobs


class PhaseStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class JobPhase(Object, frozen=True):
    status: PhaseStatus = PhaseStatus()


JOB_PHASES = Resource(PADDLE_JOBS.prefix, PADDLE_JOBS.plural, JobPhase)


@dataclass
class Submission:
    """The submitted jobs and their phases."""

    client: Client
    namespace: str
    informer: Informer[JobPhase, JobPhase]
    changed: asyncio.Event
    sent: int = 0

    async def send(self, name: str, shape: Shape, policies: Manifest | None = None) -> None:
        self.sent += 1
        await self.client.create(JOB_PHASES, make_job(self.namespace, name, shape, policies))

    def count_in_phase(self, phase: Phase) -> int:
        jobs = (job for job in self.informer.store if job.key.name.startswith((LARGE_PREFIX, SMALL_PREFIX)))
        return sum(job.status.phase == phase for job in jobs)

    def has_succeeded(self, name: str) -> bool:
        job = self.informer.store.get(Key(self.namespace, name))
        return job is not None and job.status.phase == Phase.COMPLETED

    async def wait_all_succeeded(self) -> None:
        while self.count_in_phase(Phase.COMPLETED) < self.sent:
            assert not self.count_in_phase(Phase.FAILED), "a job of the load has failed"
            self.changed.clear()
            await self.changed.wait()

    async def wait_no_pods(self) -> None:
        while await self._has_pods():  # noqa: ASYNC110  # watching 10,000 pods would add to the load
            await asyncio.sleep(POLL_SECONDS)

    async def _has_pods(self) -> bool:
        async with aclosing(self.client.list_pages(PODS, Scope(self.namespace), 1)) as pages:
            return bool((await anext(pages)).items)


async def submit(arguments: Submit, parent: ParentProcess) -> None:
    async with make_client(arguments, "submitter") as client:
        informer: Informer[JobPhase, JobPhase] = Informer(client, JOB_PHASES, Scope(arguments.namespace))
        submission = Submission(client, arguments.namespace, informer, asyncio.Event())
        informer.store.listen(lambda *_: submission.changed.set())
        informer_task = asyncio.ensure_future(informer.run())
        await informer.wait_synced()
        # The API server compiles the CRD's rules for its first job, which takes 1 to 2 s.
        await client.create(JOB_PHASES, make_job(arguments.namespace, "first", arguments.shape), dry_run=True)
        print_figures(ready=1)
        await parent.wait_for_signal()
        began_at = time.monotonic()
        await run_concurrently(
            range(arguments.shape.jobs),
            lambda number: submission.send(f"{LARGE_PREFIX}-{number}", arguments.shape, arguments.policies),
        )
        if arguments.every_seconds is not None:
            await send_small_ones(submission, arguments.every_seconds)
        await submission.wait_all_succeeded()
        print_figures(done=time.monotonic() - began_at)
        await submission.wait_no_pods()
        print_figures(cleaned=time.monotonic() - began_at)
        informer_task.cancel()
        await asyncio.wait((informer_task,))


async def send_small_ones(submission: Submission, every_seconds: float) -> None:
    number = 0
    while not submission.has_succeeded(f"{LARGE_PREFIX}-0"):
        await submission.send(f"{SMALL_PREFIX}-{number}", SMALL)
        number += 1
        await asyncio.sleep(every_seconds)


if __name__ == "__main__":
    run(Submit, submit)
