"""Submits the jobs of a load and waits: until all have succeeded, and until all of their pods are gone.

With `every_seconds`, small jobs of two pods follow the load one by one until it is done.
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


class Phased(msgspec.Struct, frozen=True):
    phase: str = ""


class Figures(Object, frozen=True):
    status: Phased = Phased()


TOLD_JOBS = Resource(PADDLE_JOBS.prefix, PADDLE_JOBS.plural, Figures)


@dataclass
class Submission:
    """The jobs that were sent, and how far they are."""

    client: Client
    namespace: str
    informer: Informer[Figures, Figures]
    heard: asyncio.Event
    sent: int = 0

    async def send(self, name: str, shape: Shape, policies: Manifest | None = None) -> None:
        self.sent += 1
        await self.client.create(TOLD_JOBS, make_job(self.namespace, name, shape, policies))

    def in_phase(self, phase: Phase) -> int:
        ours = (job for job in self.informer.store if job.key.name.startswith((LARGE_PREFIX, SMALL_PREFIX)))
        return sum(job.status.phase == phase for job in ours)

    def has_succeeded(self, name: str) -> bool:
        job = self.informer.store.get(Key(self.namespace, name))
        return job is not None and job.status.phase == Phase.COMPLETED

    async def until_all_succeeded(self) -> None:
        while self.in_phase(Phase.COMPLETED) < self.sent:
            assert not self.in_phase(Phase.FAILED), "a job of the load has failed"
            self.heard.clear()
            await self.heard.wait()

    async def until_no_pod_is_left(self) -> None:
        while await self._any_pod():  # noqa: ASYNC110  # a watch of 10,000 pods would take part in the load
            await asyncio.sleep(POLL_SECONDS)

    async def _any_pod(self) -> bool:
        async with aclosing(self.client.list_pages(PODS, Scope(self.namespace), 1)) as pages:
            return bool((await anext(pages)).items)


async def submit(arguments: Submit, parent: ParentProcess) -> None:
    async with make_client(arguments, "submitter") as client:
        informer: Informer[Figures, Figures] = Informer(client, TOLD_JOBS, Scope(arguments.namespace))
        submission = Submission(client, arguments.namespace, informer, asyncio.Event())
        informer.store.listen(lambda *_: submission.heard.set())
        following = asyncio.ensure_future(informer.run())
        await informer.wait_synced()
        # The API server compiles the CRD's rules for the first job that it sees, which takes it a second or two.
        await client.create(TOLD_JOBS, make_job(arguments.namespace, "first", arguments.shape), dry_run=True)
        print_figures(ready=1)
        await parent.wait_for_signal()
        began_at = time.monotonic()
        await run_concurrently(
            range(arguments.shape.jobs),
            lambda number: submission.send(f"{LARGE_PREFIX}-{number}", arguments.shape, arguments.policies),
        )
        if arguments.every_seconds is not None:
            await send_small_ones(submission, arguments.every_seconds)
        await submission.until_all_succeeded()
        print_figures(done=time.monotonic() - began_at)
        await submission.until_no_pod_is_left()
        print_figures(cleaned=time.monotonic() - began_at)
        following.cancel()
        await asyncio.wait((following,))


async def send_small_ones(submission: Submission, every_seconds: float) -> None:
    number = 0
    while not submission.has_succeeded(f"{LARGE_PREFIX}-0"):
        await submission.send(f"{SMALL_PREFIX}-{number}", SMALL)
        number += 1
        await asyncio.sleep(every_seconds)


if __name__ == "__main__":
    run(Submit, submit)
