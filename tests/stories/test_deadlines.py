"""What is to happen at a certain time happens then, though nothing else does, and though the operator was away."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

from testbed.audit import Write, Writes
from testbed.clock import LeapingClock
from testbed.hollow_script import never_starts
from tests.stories.jobs import a_job
from tests.stories.stage import Stage, Whole, about, instant, of_job
from tests.support.rights import OPERATOR

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


# KF-C3 and KF-C6, by the clock alone, which is the case that Kubeflow misses
async def test_deadlines_and_ttls_of_seconds_are_kept_to_the_second_with_no_other_event(stage: Stage) -> None:
    stage.nodes.script("stuck-*", never_starts(), namespace=stage.namespace)
    kept: dict[str, Any] = {"ttlSecondsAfterFinished": 3, "cleanPodPolicy": "Never"}
    async with stage.recorded() as writes:
        await stage.submit(
            a_job("late", ps=2, workers=4, activeDeadlineSeconds=4, cleanPodPolicy="Always"),
            a_job("stuck", workers=2, startDeadlineSeconds=4),
            a_job("done", workers=1, **kept),
            a_job("broken", workers=1, **kept),
            a_job("instant", workers=1, ttlSecondsAfterFinished=0),
            a_job("endless", ps=2, workers=4),
        )
        async with asyncio.TaskGroup() as group:
            done = group.create_task(ends_and_goes(stage, "done", 0, "Completed"))
            broken = group.create_task(ends_and_goes(stage, "broken", 1, "Failed"))
            late = group.create_task(stage.phase("late", "Failed"))
            stuck = group.create_task(stage.phase("stuck", "Failed"))
            group.create_task(ends_and_is_gone(stage, "instant"))
            group.create_task(stage.phase("endless", "Running"))
        await stage.until_pods(lambda pods: not of_job(pods, "late"))
    assert ended_by(late.result(), "DeadlineExceeded", "Accepted", 4) == (
        "not done after 4 s, which is spec.activeDeadlineSeconds"
    )
    assert ended_by(stuck.result(), "StartDeadlineExceeded", "Running", 4) == (
        "not started after 4 s, which is spec.startDeadlineSeconds: 2 of 2 pods have no address yet"
    )
    for job in (late, stuck):
        nothing_else_happened(writes, job.result(), last_of(writes, job.result(), "patch", "paddlejobs/status"))
    for job in (done, broken):
        deleted = last_of(writes, job.result(), "delete", "paddlejobs")
        due_at = instant(job.result().status["completionTime"]) + timedelta(seconds=3)
        assert due_at <= deleted.received_at <= due_at + SECOND
        nothing_else_happened(writes, job.result(), deleted)
    assert (await stage.told_once("instant", "Completed")).note.startswith("the worker has succeeded")
    pods = await stage.pods()
    assert len(of_job(pods, "endless")) == 6
    assert {pod.phase for pod in of_job(pods, "endless").values()} == {"Running"}


async def ends_and_is_gone(stage: Stage, name: str) -> None:
    """Too soon for anybody to see how it ended; the event stays."""
    await stage.phase(name, "Running")
    await stage.exits(f"{name}-worker-0")
    await stage.gone(name)
    await stage.emptied(name)


async def ends_and_goes(stage: Stage, name: str, code: int, phase: str) -> Whole:
    """The job as it was before it was gone, with everything that was left of it."""
    await stage.phase(name, "Running")
    await stage.exits(f"{name}-worker-0", code=code)
    job = await stage.phase(name, phase)
    await stage.gone(name)
    await stage.emptied(name)
    return job


def ended_by(job: Whole, reason: str, since: str, seconds: int) -> str:
    """What it says of its end, which came so long after a condition was told, and at most a second later."""
    failed = job.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", reason)
    due_at = since_when(job, since) + timedelta(seconds=seconds)
    assert due_at <= instant(job.status["completionTime"]) <= due_at + SECOND
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


async def test_what_fell_due_while_the_operator_was_away_happens_at_once_when_it_is_back(empty_stage: Stage) -> None:
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
            group.create_task(ends(stage, "done", 0, "Completed"))
            group.create_task(ends(stage, "again", 1, "Restarting"))
        assert (await stage.job("again")).status["nextAttemptTime"]
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
        assert abs(instant(job.status["completionTime"]) - back_at) <= SECOND
        await stage.told_once(job.key.name, "Failed")


async def ends(stage: Stage, name: str, code: int, phase: str) -> None:
    await stage.phase(name, "Running")
    await stage.exits(f"{name}-worker-0", code=code)
    await stage.phase(name, phase)
    await stage.until_pods(lambda pods: not of_job(pods, name))


async def test_while_a_job_is_suspended_no_time_passes_for_its_deadline(empty_stage: Stage) -> None:
    stage, clock = empty_stage, LeapingClock()
    async with stage.operator(clock=clock):
        await stage.submit(a_job(workers=2, activeDeadlineSeconds=60))
        await stage.phase("mnist", "Running")
        clock.leap(timedelta(seconds=40))
        await stage.change("mnist", {"suspend": True})
        await stage.phase("mnist", "Suspended")
        await stage.emptied("mnist")
        clock.leap(timedelta(days=1))
        await stage.change("mnist", {"suspend": False})
        job = await stage.runs_in_attempt(1)
        spent = int(job.status["activeSeconds"])
        due_at = instant(job.status["activeSince"]) + timedelta(seconds=60 - spent)
        clock.leap_to(due_at - timedelta(seconds=10))
        await stage.another_life("beside")
        assert (await stage.job("mnist")).phase == "Running"
        clock.leap_to(due_at)
        job = await stage.phase("mnist", "Failed")
    assert 40 <= spent < 50
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert due_at <= instant(job.status["completionTime"]) <= due_at + SECOND


async def test_the_deadline_to_start_counts_anew_from_the_end_of_each_pause(empty_stage: Stage) -> None:
    stage, clock = empty_stage, LeapingClock()
    async with stage.operator(clock=clock):
        await stage.submit(a_job(workers=1, backoffLimit=1, startDeadlineSeconds=60))
        await stage.phase("mnist", "Running")
        clock.leap(HOUR)  # it has started: the deadline is behind it
        await stage.another_life("beside")
        stage.nodes.script("mnist-*", never_starts(), namespace=stage.namespace)
        await stage.exits("mnist-worker-0", code=1)
        job = await stage.phase("mnist", "Restarting")
        again_at = instant(job.status["nextAttemptTime"])
        await stage.until_pods(lambda pods: not pods)
        clock.leap_to(again_at)
        await stage.waits("mnist", "WaitingForAddresses")
        due_at = again_at + timedelta(seconds=60)
        clock.leap_to(due_at - timedelta(seconds=10))
        await stage.another_life("behind")
        assert (await stage.job("mnist")).phase == "Restarting"
        clock.leap_to(due_at)
        job = await stage.phase("mnist", "Failed")
    assert job.condition("Failed")["reason"] == "StartDeadlineExceeded"
    assert due_at <= instant(job.status["completionTime"]) <= due_at + SECOND


async def test_a_deadline_does_not_wait_for_the_end_of_a_pause(empty_stage: Stage) -> None:
    stage, clock = empty_stage, LeapingClock()
    async with stage.operator(clock=clock):
        await stage.submit(a_job(workers=2, backoffLimit=3, activeDeadlineSeconds=300))
        job = await stage.phase("mnist", "Running")
        due_at = since_when(job, "Accepted") + timedelta(seconds=300)
        clock.leap_to(due_at - timedelta(seconds=6))
        await stage.exits("mnist-worker-1", code=1)
        job = await stage.phase("mnist", "Restarting")
        assert instant(job.status["nextAttemptTime"]) > due_at
        await stage.until_pods(lambda pods: not pods)
        clock.leap_to(due_at)
        job = await stage.phase("mnist", "Failed")
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    assert due_at <= instant(job.status["completionTime"]) <= due_at + SECOND
    assert "nextAttemptTime" not in job.status
    assert not await stage.pods()
