"""What is to happen at a certain time happens then, though nothing else does, and though the operator was away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from testbed.audit import Write, Writes
from testbed.clock import LeapingClock
from testbed.hollow_script import never_starts
from tests.stories.jobs import a_job
from tests.stories.stage import WHOLE_JOBS, ClusterHarness, Whole, about, instant, of_job
from tests.support.rights import OPERATOR

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LATEST = timedelta(seconds=30)  # a stall of the machine is not the operator's; who misses a time misses it for ever
BEATS_A_SECOND = 10


class Pulse:
    """Seconds as the machine has them: a beat is a request and a tenth of a second. What stalls the operator, or the
    API server before it, stalls the pulse as well.
    """

    def __init__(self, stage: ClusterHarness, clock: LeapingClock) -> None:
        self._stage = stage
        self._clock = clock
        self._beats: list[datetime] = []

    @asynccontextmanager
    async def felt(self) -> AsyncIterator[None]:
        beating = asyncio.ensure_future(self._beat())
        try:
            yield
            enough = len(self._beats) + BEATS_A_SECOND
            while len(self._beats) <= enough:  # what happened last has its second, too
                await asyncio.sleep(0.05)
        finally:
            beating.cancel()
            await asyncio.wait((beating,))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1 / BEATS_A_SECOND)
            await self._stage.services()
            self._beats.append(self._clock.now())

    def second_after(self, instant: datetime) -> datetime:
        return [beat for beat in self._beats if beat > instant][BEATS_A_SECOND]


# KF-C3 and KF-C6, by the clock alone, which is the case that Kubeflow misses
async def test_deadlines_and_ttls_are_kept_to_the_second_with_no_other_event(empty_stage: ClusterHarness) -> None:
    """When all is quiet their hour is over but for a few seconds, which pass as they do."""
    stage, clock = empty_stage, LeapingClock()
    pulse = Pulse(stage, clock)
    stage.nodes.script("stuck-*", never_starts(), namespace=stage.namespace)
    kept: dict[str, Any] = {"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": "Never"}
    async with stage.recorded() as writes, stage.operator(clock=clock):
        await stage.submit(
            a_job("late", ps=2, workers=4, activeDeadlineSeconds=3600, cleanPodPolicy="Always"),
            a_job("stuck", workers=2, startDeadlineSeconds=3600),
            a_job("done", workers=1, **kept),
            a_job("broken", workers=1, **kept),
            a_job("instant", workers=1, ttlSecondsAfterFinished=0),
            a_job("endless", ps=2, workers=4),
        )
        async with asyncio.TaskGroup() as group:
            done = group.create_task(ends(stage, "done", 0, "Completed"))
            broken = group.create_task(ends(stage, "broken", 1, "Failed"))
            late = group.create_task(stage.phase("late", "Running"))
            stuck = group.create_task(stage.waits("stuck", "WaitingForAddresses"))
            group.create_task(ends_and_is_gone(stage, "instant"))
            group.create_task(stage.phase("endless", "Running"))
        await stage.run_unrelated_job("beside")  # so the operator had time for all that may follow
        due = {
            "late": since_when(late.result(), "Accepted") + HOUR,
            "stuck": since_when(stuck.result(), "Running") + HOUR,
            "done": instant(done.result().status["completionTime"]) + HOUR,
            "broken": instant(broken.result().status["completionTime"]) + HOUR,
        }
        clock.leap_to(min(due.values()) - 2 * SECOND)
        ahead = clock.now() - datetime.now(UTC)
        async with pulse.felt(), asyncio.TaskGroup() as group:
            late, stuck = (group.create_task(stage.phase(name, "Failed")) for name in ("late", "stuck"))
            for name in ("done", "broken"):
                group.create_task(stage.gone(name))
        await stage.until_pods(lambda pods: not of_job(pods, "late"))
    assert ended_by(late.result(), "DeadlineExceeded", due["late"], pulse.second_after(due["late"])) == (
        "not done after 3600 s, which is spec.activeDeadlineSeconds"
    )
    assert ended_by(stuck.result(), "StartDeadlineExceeded", due["stuck"], pulse.second_after(due["stuck"])) == (
        "not started after 3600 s, which is spec.startDeadlineSeconds: 2 of 2 pods have no address yet"
    )
    for job in (late, stuck):
        nothing_else_happened(writes, job.result(), last_of(writes, job.result(), "patch", "paddlejobs/status"))
    for job in (done, broken):
        deleted = last_of(writes, job.result(), "delete", "paddlejobs")
        due_at = due[job.result().key.name]
        assert due_at <= deleted.received_at + ahead <= pulse.second_after(due_at) + SECOND
        nothing_else_happened(writes, job.result(), deleted)
    assert (await stage.told_once("instant", "Completed")).note.startswith("the worker has succeeded")
    pods = await stage.pods()
    assert len(of_job(pods, "endless")) == 6
    assert {pod.phase for pod in of_job(pods, "endless").values()} == {"Running"}


async def ends_and_is_gone(stage: ClusterHarness, name: str) -> None:
    """Too soon for anybody to see how it ended; the event stays."""
    await stage.phase(name, "Running")
    await stage.exits(f"{name}-worker-0")
    await stage.gone(name)
    await stage.emptied(name)


def ended_by(job: Whole, reason: str, due_at: datetime, latest: datetime) -> str:
    """What it says of its end, which came when it was due, and no later than it may."""
    failed = job.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", reason)
    assert due_at <= instant(job.status["completionTime"]) <= latest
    return str(failed["message"])


def since_when(job: Whole, condition: str) -> datetime:
    return instant(job.condition(condition)["lastTransitionTime"])


def last_of(writes: Writes, job: Whole, verb: str, target: str) -> Write:
    return [write for write in about(writes, job.key.name).by(OPERATOR).to(target) if write.verb == verb][-1]


def nothing_else_happened(writes: Writes, job: Whole, deed: Write) -> None:
    """In the second before the deed nobody wrote anything of the job that the operator could have heard of."""
    before = [each for each in about(writes, job.key.name) if each.received_at < deed.received_at]
    assert [
        (each.user, each.verb, each.target, each.name)
        for each in before
        if each.received_at > deed.received_at - SECOND and each.target != "events"
    ] == []
    assert {each.user for each in before} > {OPERATOR}  # so the others' would have been seen


async def test_what_fell_due_while_the_operator_was_away_happens_at_once_when_it_is_back(
    empty_stage: ClusterHarness,
) -> None:
    """A deadline, a deadline to start, a time to live, and the end of a pause; it was away for an hour."""
    stage = empty_stage
    stage.nodes.script("stuck-*", never_starts(), namespace=stage.namespace)
    async with stage.operator():
        await stage.submit(
            a_job("late", workers=2, activeDeadlineSeconds=3600, cleanPodPolicy="Always"),
            a_job("stuck", workers=2, startDeadlineSeconds=3600),
            a_job("done", workers=1, ttlSecondsAfterFinished=3600),
            a_job("again", workers=1, backoffLimit=1),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.phase("late", "Running"))
            group.create_task(stage.waits("stuck", "WaitingForAddresses"))
            group.create_task(ends_and_is_cleaned(stage, "done", 0, "Completed"))
            again = group.create_task(ends_and_is_cleaned(stage, "again", 1, "Restarting"))
        assert again.result().status["nextAttemptTime"]
    clock = LeapingClock(HOUR)
    async with stage.operator(clock=clock):
        back_at = clock.now()
        async with asyncio.TaskGroup() as group:
            late = group.create_task(stage.phase("late", "Failed"))
            stuck = group.create_task(stage.phase("stuck", "Failed"))
            group.create_task(stage.gone("done"))
            group.create_task(stage.runs_in_attempt(1, "again"))
    for job, reason in ((late.result(), "DeadlineExceeded"), (stuck.result(), "StartDeadlineExceeded")):
        assert job.condition("Failed")["reason"] == reason
        assert abs(instant(job.status["completionTime"]) - back_at) <= LATEST
        await stage.told_once(job.key.name, "Failed")


async def ends(stage: ClusterHarness, name: str, code: int, phase: str) -> Whole:
    """The job as it was when that was first told."""
    await stage.phase(name, "Running")
    await stage.exits(f"{name}-worker-0", code=code)
    return await stage.phase(name, phase)


async def ends_and_is_cleaned(stage: ClusterHarness, name: str, code: int, phase: str) -> Whole:
    job = await ends(stage, name, code, phase)
    await stage.until_pods(lambda pods: not of_job(pods, name))
    return job


async def test_while_a_job_is_suspended_no_time_passes_for_its_deadline(empty_stage: ClusterHarness) -> None:
    stage, clock = empty_stage, LeapingClock()
    async with stage.operator(clock=clock):
        await stage.submit(a_job(workers=2, activeDeadlineSeconds=7200))
        await stage.phase("mnist", "Running")
        clock.leap(HOUR)
        await stage.change("mnist", {"suspend": True})
        await stage.phase("mnist", "Suspended")
        await stage.emptied("mnist")
        clock.leap(timedelta(days=1))
        await stage.change("mnist", {"suspend": False})
        job = await stage.runs_in_attempt(1)
        spent = int(job.status["activeSeconds"])
        due_at = instant(job.status["activeSince"]) + timedelta(seconds=7200 - spent)
        clock.leap_to(due_at - 10 * MINUTE)
        await stage.run_unrelated_job("beside")
        assert (await stage.job("mnist")).phase == "Running"
        clock.leap_to(due_at)
        job = await stage.phase("mnist", "Failed")
    assert HOUR <= timedelta(seconds=spent) < HOUR + 10 * MINUTE
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert due_at <= instant(job.status["completionTime"]) <= due_at + LATEST


async def test_the_deadline_to_start_counts_anew_from_the_end_of_each_pause(empty_stage: ClusterHarness) -> None:
    stage, clock = empty_stage, LeapingClock()
    async with stage.operator(clock=clock):
        await stage.submit(a_job(workers=1, backoffLimit=1, startDeadlineSeconds=3600))
        await stage.phase("mnist", "Running")
        clock.leap(2 * HOUR)  # it has started: the deadline is behind it
        await stage.run_unrelated_job("beside")
        stage.nodes.script("mnist-*", never_starts(), namespace=stage.namespace)
        await stage.exits("mnist-worker-0", code=1)
        job = await stage.phase("mnist", "Restarting")
        again_at = instant(job.status["nextAttemptTime"])
        await stage.until_pods(lambda pods: not pods)
        clock.leap_to(again_at)
        await stage.waits("mnist", "WaitingForAddresses")
        due_at = again_at + HOUR
        clock.leap_to(due_at - 10 * MINUTE)
        await stage.run_unrelated_job("behind")
        assert (await stage.job("mnist")).phase == "Restarting"
        clock.leap_to(due_at)
        job = await stage.phase("mnist", "Failed")
    assert job.condition("Failed")["reason"] == "StartDeadlineExceeded"
    assert due_at <= instant(job.status["completionTime"]) <= due_at + LATEST


async def test_a_deadline_does_not_wait_for_the_end_of_a_pause(empty_stage: ClusterHarness) -> None:
    """The longest pause, of six minutes, comes after nine tries that failed: that there were so many is pretended."""
    stage, clock = empty_stage, LeapingClock()
    async with stage.operator(clock=clock):
        await stage.submit(a_job(workers=2, backoffLimit=20, activeDeadlineSeconds=3600))
        job = await stage.phase("mnist", "Running")
        await stage.client.merge_status(WHOLE_JOBS, job.key, {"restarts": 9})
        await stage.run_unrelated_job("beside")  # which was made after that: so the operator knows of it
        due_at = since_when(job, "Accepted") + HOUR
        clock.leap_to(due_at - 3 * MINUTE)
        await stage.exits("mnist-worker-1", code=1)
        job = await stage.phase("mnist", "Restarting")
        assert instant(job.status["nextAttemptTime"]) > due_at
        await stage.until_pods(lambda pods: not pods)
        clock.leap_to(due_at)
        job = await stage.phase("mnist", "Failed")
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert due_at <= instant(job.status["completionTime"]) <= due_at + LATEST
    assert "nextAttemptTime" not in job.status
    assert not await stage.pods()
