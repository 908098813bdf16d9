"""What is to happen at a certain time happens then, though nothing else does, and though the operator was away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from testbed.audit import AuditedWrite, AuditedWrites
from testbed.clock import OffsetClock
from testbed.hollow_script import never_starts
from tests.stories.harness import (
    FULL_JOBS,
    ClusterHarness,
    FullObject,
    on_embedded_plane,
    on_real_plane,
    parse_time,
    pods_of_job,
    writes_for_job,
)
from tests.stories.jobs import make_job
from tests.support.service_account import OPERATOR

pytestmark = on_embedded_plane

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LATEST = timedelta(seconds=30)  # a stall of the machine is not the operator's; who misses a time misses it for ever
BEATS_A_SECOND = 10


class Pulse:
    """Seconds as the machine has them: a beat is a request and a tenth of a second. What stalls the operator, or the
    API server before it, stalls the pulse as well.
    """

    def __init__(self, harness: ClusterHarness, clock: OffsetClock) -> None:
        self._harness = harness
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
            await self._harness.list_services()
            self._beats.append(self._clock.now())

    def second_after(self, parse_time: datetime) -> datetime:
        return [beat for beat in self._beats if beat > parse_time][BEATS_A_SECOND]


# KF-C3 and KF-C6, by the clock alone, which is the case that Kubeflow misses
@on_real_plane
async def test_deadlines_and_ttls_need_no_event_and_hold_to_a_second(bare_harness: ClusterHarness) -> None:
    """When all is quiet their hour is over but for a few seconds, which pass as they do."""
    harness, clock = bare_harness, OffsetClock()
    pulse = Pulse(harness, clock)
    harness.nodes.script("stuck-*", never_starts(), namespace=harness.namespace)
    kept: dict[str, Any] = {"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": "Never"}
    async with harness.record_writes() as writes, harness.run_operator(clock=clock):
        await harness.submit(
            make_job("late", ps=2, workers=4, activeDeadlineSeconds=3600, cleanPodPolicy="Always"),
            make_job("stuck", workers=2, startDeadlineSeconds=3600),
            make_job("done", workers=1, **kept),
            make_job("broken", workers=1, **kept),
            make_job("instant", workers=1, ttlSecondsAfterFinished=0),
            make_job("endless", ps=2, workers=4),
        )
        async with asyncio.TaskGroup() as group:
            done = group.create_task(ends(harness, "done", 0, "Completed"))
            broken = group.create_task(ends(harness, "broken", 1, "Failed"))
            late = group.create_task(harness.wait_phase("late", "Running"))
            stuck = group.create_task(harness.wait_not_running("stuck", "WaitingForAddresses"))
            group.create_task(ends_and_is_gone(harness, "instant"))
            group.create_task(harness.wait_phase("endless", "Running"))
        await harness.run_unrelated_job("beside")  # so the operator had time for all that may follow
        due = {
            "late": transition_time(late.result(), "Accepted") + HOUR,
            "stuck": transition_time(stuck.result(), "Running") + HOUR,
            "done": parse_time(done.result().status["completionTime"]) + HOUR,
            "broken": parse_time(broken.result().status["completionTime"]) + HOUR,
        }
        clock.advance_to(min(due.values()) - 2 * SECOND)
        ahead = clock.now() - datetime.now(UTC)
        async with pulse.felt(), asyncio.TaskGroup() as group:
            late, stuck = (group.create_task(harness.wait_phase(name, "Failed")) for name in ("late", "stuck"))
            for name in ("done", "broken"):
                group.create_task(harness.wait_deleted(name))
        await harness.wait_pods(lambda pods: not pods_of_job(pods, "late"))
    assert ended_by(late.result(), "DeadlineExceeded", due["late"], pulse.second_after(due["late"])) == (
        "not finished within spec.activeDeadlineSeconds, which is 3600"
    )
    assert ended_by(stuck.result(), "StartDeadlineExceeded", due["stuck"], pulse.second_after(due["stuck"])) == (
        "not started within spec.startDeadlineSeconds, which is 3600: 2 of 2 pods have no address yet"
    )
    for job in (late, stuck):
        nothing_else_happened(writes, job.result(), last_of(writes, job.result(), "patch", "paddlejobs/status"))
    for job in (done, broken):
        deleted = last_of(writes, job.result(), "delete", "paddlejobs")
        due_at = due[job.result().key.name]
        assert due_at <= deleted.received_at + ahead <= pulse.second_after(due_at) + SECOND
        nothing_else_happened(writes, job.result(), deleted)
    assert (await harness.wait_single_event("instant", "Completed")).note.startswith("the worker succeeded")
    pods = await harness.list_pods()
    assert len(pods_of_job(pods, "endless")) == 6
    assert {pod.phase for pod in pods_of_job(pods, "endless").values()} == {"Running"}


async def ends_and_is_gone(harness: ClusterHarness, name: str) -> None:
    """Too soon for anybody to see how it ended; the event stays."""
    await harness.wait_phase(name, "Running")
    await harness.exit_pods(f"{name}-worker-0")
    await harness.wait_deleted(name)
    await harness.wait_children_deleted(name)


def ended_by(job: FullObject, reason: str, due_at: datetime, latest: datetime) -> str:
    """What it says of its end, which came when it was due, and no later than it may."""
    failed = job.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", reason)
    assert due_at <= parse_time(job.status["completionTime"]) <= latest
    return str(failed["message"])


def transition_time(job: FullObject, condition: str) -> datetime:
    return parse_time(job.condition(condition)["lastTransitionTime"])


def last_of(writes: AuditedWrites, job: FullObject, verb: str, target: str) -> AuditedWrite:
    return [write for write in writes_for_job(writes, job.key.name).by(OPERATOR).to(target) if write.verb == verb][-1]


def nothing_else_happened(writes: AuditedWrites, job: FullObject, deed: AuditedWrite) -> None:
    """In the second before the deed nobody wrote anything of the job that the operator could have heard of."""
    before = [each for each in writes_for_job(writes, job.key.name) if each.received_at < deed.received_at]
    assert [
        (each.user, each.verb, each.target, each.name)
        for each in before
        if each.received_at > deed.received_at - SECOND and each.target != "events"
    ] == []
    assert {each.user for each in before} > {OPERATOR}  # so the others' would have been seen


async def test_overdue_actions_happen_when_the_operator_returns(
    bare_harness: ClusterHarness,
) -> None:
    """A deadline, a deadline to start, a time to live, and the end of a pause; it was away for an hour."""
    harness = bare_harness
    harness.nodes.script("stuck-*", never_starts(), namespace=harness.namespace)
    async with harness.run_operator():
        await harness.submit(
            make_job("late", workers=2, activeDeadlineSeconds=3600, cleanPodPolicy="Always"),
            make_job("stuck", workers=2, startDeadlineSeconds=3600),
            make_job("done", workers=1, ttlSecondsAfterFinished=3600),
            make_job("again", workers=1, backoffLimit=1),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(harness.wait_phase("late", "Running"))
            group.create_task(harness.wait_not_running("stuck", "WaitingForAddresses"))
            group.create_task(ends_and_is_cleaned(harness, "done", 0, "Completed"))
            again = group.create_task(ends_and_is_cleaned(harness, "again", 1, "Restarting"))
        assert again.result().status["nextAttemptTime"]
    clock = OffsetClock(HOUR)
    async with harness.run_operator(clock=clock):
        back_at = clock.now()
        async with asyncio.TaskGroup() as group:
            late = group.create_task(harness.wait_phase("late", "Failed"))
            stuck = group.create_task(harness.wait_phase("stuck", "Failed"))
            group.create_task(harness.wait_deleted("done"))
            group.create_task(harness.wait_running(1, "again"))
    for job, reason in ((late.result(), "DeadlineExceeded"), (stuck.result(), "StartDeadlineExceeded")):
        assert job.condition("Failed")["reason"] == reason
        assert abs(parse_time(job.status["completionTime"]) - back_at) <= LATEST
        await harness.wait_single_event(job.key.name, "Failed")


async def ends(harness: ClusterHarness, name: str, code: int, phase: str) -> FullObject:
    """The job as it was when that was first told."""
    await harness.wait_phase(name, "Running")
    await harness.exit_pods(f"{name}-worker-0", code=code)
    return await harness.wait_phase(name, phase)


async def ends_and_is_cleaned(harness: ClusterHarness, name: str, code: int, phase: str) -> FullObject:
    job = await ends(harness, name, code, phase)
    await harness.wait_pods(lambda pods: not pods_of_job(pods, name))
    return job


async def test_suspension_stops_the_deadline_clock(bare_harness: ClusterHarness) -> None:
    harness, clock = bare_harness, OffsetClock()
    async with harness.run_operator(clock=clock):
        await harness.submit(make_job(workers=2, activeDeadlineSeconds=7200))
        await harness.wait_phase("mnist", "Running")
        clock.advance(HOUR)
        await harness.patch_spec("mnist", {"suspend": True})
        await harness.wait_phase("mnist", "Suspended")
        await harness.wait_children_deleted("mnist")
        clock.advance(timedelta(days=1))
        await harness.patch_spec("mnist", {"suspend": False})
        job = await harness.wait_running(1)
        spent = int(job.status["activeSeconds"])
        due_at = parse_time(job.status["activeSince"]) + timedelta(seconds=7200 - spent)
        clock.advance_to(due_at - 10 * MINUTE)
        await harness.run_unrelated_job("beside")
        assert (await harness.get_job("mnist")).phase == "Running"
        clock.advance_to(due_at)
        job = await harness.wait_phase("mnist", "Failed")
    assert HOUR <= timedelta(seconds=spent) < HOUR + 10 * MINUTE
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert due_at <= parse_time(job.status["completionTime"]) <= due_at + LATEST


async def test_start_deadline_restarts_after_each_pause(bare_harness: ClusterHarness) -> None:
    harness, clock = bare_harness, OffsetClock()
    async with harness.run_operator(clock=clock):
        await harness.submit(make_job(workers=1, backoffLimit=1, startDeadlineSeconds=3600))
        await harness.wait_phase("mnist", "Running")
        clock.advance(2 * HOUR)  # it has started: the deadline is behind it
        await harness.run_unrelated_job("beside")
        harness.nodes.script("mnist-*", never_starts(), namespace=harness.namespace)
        await harness.exit_pods("mnist-worker-0", code=1)
        job = await harness.wait_phase("mnist", "Restarting")
        again_at = parse_time(job.status["nextAttemptTime"])
        await harness.wait_pods(lambda pods: not pods)
        clock.advance_to(again_at)
        await harness.wait_not_running("mnist", "WaitingForAddresses")
        due_at = again_at + HOUR
        clock.advance_to(due_at - 10 * MINUTE)
        await harness.run_unrelated_job("behind")
        assert (await harness.get_job("mnist")).phase == "Restarting"
        clock.advance_to(due_at)
        job = await harness.wait_phase("mnist", "Failed")
    assert job.condition("Failed")["reason"] == "StartDeadlineExceeded"
    assert due_at <= parse_time(job.status["completionTime"]) <= due_at + LATEST


async def test_a_deadline_does_not_wait_for_the_end_of_a_pause(bare_harness: ClusterHarness) -> None:
    """The longest pause, of six minutes, comes after nine tries that failed: that there were so many is pretended."""
    harness, clock = bare_harness, OffsetClock()
    async with harness.run_operator(clock=clock):
        await harness.submit(make_job(workers=2, backoffLimit=20, activeDeadlineSeconds=3600))
        job = await harness.wait_phase("mnist", "Running")
        await harness.client.merge_status(FULL_JOBS, job.key, {"restarts": 9})
        await harness.run_unrelated_job("beside")  # which was made after that: so the operator knows of it
        due_at = transition_time(job, "Accepted") + HOUR
        clock.advance_to(due_at - 3 * MINUTE)
        await harness.exit_pods("mnist-worker-1", code=1)
        job = await harness.wait_phase("mnist", "Restarting")
        assert parse_time(job.status["nextAttemptTime"]) > due_at
        await harness.wait_pods(lambda pods: not pods)
        clock.advance_to(due_at)
        job = await harness.wait_phase("mnist", "Failed")
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert due_at <= parse_time(job.status["completionTime"]) <= due_at + LATEST
    assert "nextAttemptTime" not in job.status
    assert not await harness.list_pods()
