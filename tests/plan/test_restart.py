"""A new attempt replaces all pods; a pod on a node that is dead does not hold it up for ever."""

from datetime import datetime
from typing import Any

import pytest

from paddle_operator.kube.objects import PODS
from paddle_operator.kube.writes import Delete
from paddle_operator.plan.children import Children
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    SECONDS,
    T0,
    make_job,
    make_pod,
    make_running_children,
    reasons,
    with_status,
    without_pods,
    writes_of,
)
from tests.support.model import Model, start_scenario


def stuck(*, job: str = "mnist", terminates_by: datetime | None = T0, **told: Any) -> tuple[Any, Children]:
    """A job of whose last attempt one pod is still there, and was to be gone by then."""
    again = make_job(job, workers=1, attempt=1, phase="Restarting")
    pod = make_pod(
        again, "worker", 0, attempt=0, terminating=terminates_by is not None, terminates_by=terminates_by, **told
    )
    return again, Children((pod,))


def test_stuck_pod_is_force_deleted_after_a_minute() -> None:
    job, there = stuck()
    early = plan(job, there, T0 + 59 * SECONDS)
    assert (writes_of(early), early.requeue_at) == ([], T0 + 60 * SECONDS)
    late = plan(job, there, T0 + 60 * SECONDS)
    (pod,) = there.pods
    assert writes_of(late) == [Delete(PODS, pod.key, pod.uid, force=True)]
    assert "NodeLost" in reasons(late)
    note = next(each.note for each in late.events if each.reason == "NodeLost")
    assert note == "mnist-worker-0 is stuck terminating on node-0; force-deleting it"


def test_finished_pod_is_never_force_deleted() -> None:
    """A finalizer: there is no process any more, and its owner will take it off."""
    for code in (0, 1):
        job, there = stuck(exit_code=code)
        desired = plan(job, there, T0 + 3600 * SECONDS)
        assert not [each for each in writes_of(desired) if isinstance(each, Delete)]


def test_a_pod_that_never_had_a_node_is_not_given_up_either() -> None:
    job, there = stuck(phase="Pending")
    desired = plan(job, there, T0 + 3600 * SECONDS)
    assert (writes_of(desired), desired.requeue_at, "NodeLost" in reasons(desired)) == ([], None, False)


def test_force_deleted_pods_are_reported_by_name() -> None:
    job = make_job(workers=3, attempt=1, phase="Restarting")
    pods = [make_pod(job, "worker", index, attempt=0, terminating=True, terminates_by=T0) for index in (2, 0, 1)]
    events = plan(job, Children(tuple(pods)), T0 + 60 * SECONDS).events
    lost = [each.note.split()[0] for each in events if each.reason == "NodeLost"]
    assert lost == ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"]


def test_a_pod_that_nobody_has_deleted_yet_gets_its_grace_first() -> None:
    job, there = stuck(terminates_by=None)
    (pod,) = there.pods
    assert writes_of(plan(job, there, T0 + 3600 * SECONDS)) == [Delete(PODS, pod.key, pod.uid)]


def test_a_life_with_a_dead_node_goes_on_by_itself() -> None:
    life = start_scenario(make_job(workers=2))
    lost = life.pods["mnist-worker-1"]
    life.unresponsive_nodes.add(lost.node)
    life.delete_pod("mnist-worker-1")  # as the taint manager does
    life.advance(89)  # its grace of 30 s, and a minute
    assert life.pods["mnist-worker-1"].uid == lost.uid
    life.advance(1)
    assert life.pods["mnist-worker-1"].uid != lost.uid
    assert life.event_reasons.count("NodeLost") == 1
    life.unresponsive_nodes.clear()
    life.run_all_pods()
    assert (life.status.phase, life.status.attempt, life.status.restarts) == ("Running", 1, 0)


def test_pod_of_this_attempt_is_not_force_deleted() -> None:
    job = make_job(workers=1, phase="Running")
    there = Children(
        (make_pod(job, "worker", 0, terminating=True, terminates_by=T0, exit_code=0),),
        make_running_children(job).config_maps,
    )
    assert plan(job, there, T0 + 3600 * SECONDS).status.phase == "Completed"


@pytest.mark.parametrize("limit", [None, 0, 3])
def test_what_makes_addresses_untrue_costs_no_try(limit: int | None) -> None:
    policies = {} if limit is None else {"backoffLimit": limit}
    job = make_job(workers=3, phase="Running", restarts=0, policies=policies)
    desired = plan(job, without_pods(make_running_children(job), "mnist-worker-2"), T0)
    assert (desired.status.attempt, desired.status.restarts, desired.status.next_attempt_time) == (1, 0, None)


def test_earlier_backoff_does_not_delay_a_later_restart() -> None:
    job = make_job(
        workers=2, phase="Running", restarts=1, attempt=1, next_attempt_time=T0, policies={"backoffLimit": 3}
    )
    again = with_status(
        job, plan(job, without_pods(make_running_children(job), "mnist-worker-1"), T0 + 99 * SECONDS).status
    )
    assert len(writes_of(plan(again, Children(), T0 + 99 * SECONDS))) == 2


def test_attempt_is_written_before_its_writes() -> None:
    life = Model(make_job(workers=2, policies={"backoffLimit": 1}), Children(), T0)
    life.run_all_pods()
    life.exit_pod("mnist-worker-0", 1)
    first = life.reconcile()
    assert (first.status.attempt, writes_of(first)) == (1, [])
    second = life.reconcile()
    assert second.status.attempt == 1
    assert writes_of(second)
