"""What is read off the server's objects, and where each pod belongs."""

from typing import Any

import msgspec
import pytest

from paddle_operator.api.paddlejob import Role, RoleStatus
from paddle_operator.kube.objects import Object, Pod
from paddle_operator.plan.children import Children, PodView, child_view, pod_view
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.success_policy import is_succeeded
from tests.support.jobs import (
    T0,
    UID,
    a_barrier,
    a_go_barrier,
    a_group,
    a_job,
    a_pod,
    a_refusal,
    a_service,
    a_template,
    all_pods,
    replaced,
    running,
    without,
)

TIME = "2026-05-04T12:00:00Z"


def world_of(job: Job, children: Children) -> ObservedJob:
    assert job.spec
    return ObservedJob(job, job.spec, children)


def seen(status: dict[str, Any], *containers: str, **spec: object) -> PodView:
    stored = {
        "metadata": {"name": "mnist-worker-0", "namespace": "ns", "uid": "p", "resourceVersion": "12"},
        "spec": {"containers": [{"name": name} for name in containers or ("paddle",)], **spec},
        "status": status,
    }
    return pod_view(msgspec.json.decode(msgspec.json.encode(stored), type=Pod))


def ended(name: str, code: int, reason: str = "Error") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": TIME}}}


def runs(name: str, *, ready: bool = True) -> dict[str, Any]:
    return {"name": name, "ready": ready, "state": {"running": {"startedAt": TIME}}}


# Views


def test_a_pods_marks_are_read_off_its_metadata() -> None:
    stored = {
        "metadata": {
            "name": "mnist-worker-0",
            "namespace": "ns",
            "uid": "p",
            "resourceVersion": "12",
            "deletionTimestamp": TIME,
            "labels": {"batch.paddlepaddle.org/job-uid": UID},
            "annotations": {"batch.paddlepaddle.org/attempt": "2", "batch.paddlepaddle.org/contract": "abc"},
            "ownerReferences": [{"kind": "PaddleJob", "name": "mnist", "uid": UID, "controller": True}],
        },
        "spec": {"nodeName": "n1", "activeDeadlineSeconds": 60},
        "status": {"phase": "Pending", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "192.168.0.1"},
    }
    view = pod_view(msgspec.convert(stored, Pod, strict=False))
    assert (view.key, view.version, view.owner_uid) == (("ns", "mnist-worker-0"), 12, UID)
    assert (view.attempt, view.nudged_for, view.created_by_us, view.terminating) == (2, "abc", True, True)
    assert (view.node, view.node_address, view.address, view.deadline_seconds) == ("n1", "192.168.0.1", "10.0.0.1", 60)


def test_of_two_addresses_the_first_counts_since_pod_ip_will_be_that() -> None:
    status = {"phase": "Running", "podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]}
    assert seen(status).address == "fd00::1"


@pytest.mark.parametrize("text", ["", "x", "-1", "²", "1.5"])
def test_an_attempt_that_is_no_number_is_the_first(text: str) -> None:
    stored = {
        "metadata": {"resourceVersion": "1", "annotations": {"batch.paddlepaddle.org/attempt": text}},
    }
    assert pod_view(msgspec.convert(stored, Pod)).attempt == 0


def test_a_pod_of_the_go_operator_is_not_ours() -> None:
    view = seen({"phase": "Pending", "initContainerStatuses": [runs("coord-paddle")]})
    assert not view.created_by_us
    assert not view.started


def test_a_pod_is_ready_when_all_its_containers_are() -> None:
    both = ["paddle", "logs"]
    assert seen({"phase": "Running", "containerStatuses": [runs("paddle"), runs("logs")]}, *both).ready
    assert not seen({"phase": "Running", "containerStatuses": [runs("paddle"), runs("logs", ready=False)]}, *both).ready
    assert not seen({"phase": "Running"}).ready


def test_a_pod_has_started_when_its_main_container_has() -> None:
    waits = {"name": "paddle", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}
    assert not seen({"phase": "Pending", "containerStatuses": [runs("logs"), waits]}, "logs", "paddle").started
    assert seen({"phase": "Running", "containerStatuses": [runs("paddle", ready=False)]}).started
    assert seen({"phase": "Running", "containerStatuses": [waits | {"restartCount": 1}]}).started
    assert seen({"phase": "Failed", "containerStatuses": [ended("paddle", 1)]}).started


def test_what_a_container_waits_for_is_read_init_containers_first() -> None:
    waits = {"name": "paddle", "state": {"waiting": {"reason": "PodInitializing"}}}
    first = {"name": "fetch", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    view = seen({"phase": "Pending", "initContainerStatuses": [first], "containerStatuses": [waits]})
    assert (view.waiting, view.waiting_message) == ("ImagePullBackOff", "no such image")


def test_why_a_pod_has_no_node_is_read() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}
    assert seen({"phase": "Pending", "conditions": [said]}).unschedulable == "0/4 nodes"
    assert seen({"phase": "Pending", "conditions": [said | {"reason": "SchedulingGated"}]}).unschedulable == ""


def test_the_end_of_the_container_named_paddle_is_the_pods() -> None:
    view = seen({"phase": "Failed", "containerStatuses": [ended("logs", 1), ended("paddle", 139)]}, "logs", "paddle")
    assert (view.exit_code, view.exit_reason, view.finished_at, view.failed_container) == (139, "Error", T0, "")


def test_without_a_container_of_that_name_the_first_speaks() -> None:
    view = seen({"phase": "Failed", "containerStatuses": [ended("logs", 1), ended("train", 3)]}, "train", "logs")
    assert view.exit_code == 3


def test_where_a_sidecar_failed_and_the_main_container_never_ran_it_is_named() -> None:
    statuses = [{"name": "paddle", "state": {"waiting": {"reason": "ContainerCreating"}}}, ended("logs", 7)]
    view = seen({"phase": "Failed", "containerStatuses": statuses}, "paddle", "logs")
    assert (view.exit_code, view.failed_container) == (7, "logs")


def test_where_only_a_sidecar_failed_the_main_container_speaks_all_the_same() -> None:
    statuses = [ended("paddle", 0, "Completed"), ended("logs", 7)]
    view = seen({"phase": "Failed", "containerStatuses": statuses}, "paddle", "logs")
    assert (view.exit_code, view.failed_container, view.only_sidecars_failed) == (0, "", True)


def test_a_pod_that_was_taken_away_did_not_just_lose_a_sidecar() -> None:
    statuses = [ended("paddle", 0, "Completed"), ended("logs", 143)]
    view = seen({"phase": "Failed", "reason": "Evicted", "containerStatuses": statuses}, "paddle", "logs")
    assert not view.only_sidecars_failed


@pytest.mark.parametrize(
    ("status", "disrupted"),
    [
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]}, True),
        ({"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "DeletionByTaintManager"}]}, False),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, False),
        ({"reason": "Lost"}, True),
        ({"reason": "DeadlineExceeded"}, False),
        ({}, False),
    ],
)
def test_a_pod_is_disrupted_if_somebody_took_it_away(status: dict[str, Any], disrupted: bool) -> None:
    assert seen({"phase": "Failed", **status}).disrupted is disrupted


def test_where_an_init_container_failed_it_is_named() -> None:
    waits = {"name": "paddle", "state": {"waiting": {"reason": "PodInitializing"}}}
    status = {"phase": "Failed", "initContainerStatuses": [ended("fetch", 4)], "containerStatuses": [waits]}
    view = seen(status)
    assert (view.exit_code, view.failed_container) == (4, "fetch")


def test_a_failed_sidecar_of_a_pod_that_runs_says_nothing_yet() -> None:
    view = seen({"phase": "Running", "containerStatuses": [runs("paddle"), ended("logs", 7)]}, "paddle", "logs")
    assert (view.exit_code, view.failed_container) == (None, "")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"reason": "DeadlineExceeded", "containerStatuses": [ended("paddle", 143)]}, "DeadlineExceeded"),
        ({"reason": "Evicted"}, "Evicted"),
        (
            {
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
                "containerStatuses": [ended("paddle", 137)],
            },
            "PreemptionByScheduler",
        ),
        (
            {
                "conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"}],
                "containerStatuses": [ended("paddle", 137, "OOMKilled")],
            },
            "OOMKilled",
        ),
    ],
)
def test_who_took_a_pod_away_knows_better_than_its_container(status: dict[str, Any], reason: str) -> None:
    assert seen({"phase": "Failed", **status}).exit_reason == reason


def test_a_childs_marks_are_read_off_its_annotations() -> None:
    annotations = {
        "batch.paddlepaddle.org/attempt": "1",
        "batch.paddlepaddle.org/replicas": "worker=2",
        "batch.paddlepaddle.org/contract": "abc",
    }
    stored = {"metadata": {"name": "mnist", "namespace": "ns", "uid": "c", "resourceVersion": "3"}}
    go = child_view(msgspec.convert(stored, Object))
    assert (go.created_by_us, go.attempt, go.replicas, go.endpoints_digest) == (False, 0, "", "")
    stored["metadata"] |= {"annotations": annotations}  # type: ignore[dict-item]
    created_by_us = child_view(msgspec.convert(stored, Object))
    assert (
        created_by_us.created_by_us,
        created_by_us.attempt,
        created_by_us.replicas,
        created_by_us.endpoints_digest,
    ) == (True, 1, "worker=2", "abc")


def test_an_object_of_another_namespace_is_nobodys_child() -> None:
    job = a_job(workers=1)
    strays = Children(
        (a_pod(job, "worker", 0, namespace="elsewhere"),),
        (a_barrier(job, namespace="elsewhere"),),
        (a_service(job, "worker", 0, namespace="elsewhere"),),
    )
    assert strays.in_namespace("paddle-system") == Children()
    assert strays.in_namespace("elsewhere") is strays


# Places


def test_pods_come_in_the_order_of_roles_and_numbers_however_they_were_found() -> None:
    job = a_job(ps=1, workers=11, heter=1)
    pods = all_pods(job)
    observed = world_of(job, Children(tuple(reversed(pods))))
    assert [pod.name for pod in observed.pods()] == [pod.name for pod in pods]
    assert [pod.name for pod in observed.pods(Role.HETER)] == ["mnist-heter-0"]


@pytest.mark.parametrize(
    "odd",
    [
        {"attempt": 0},
        {"name": "mnist-worker-2"},
        {"name": "mnist-worker-01"},
        {"name": "mnist-ps-0"},
        {"name": "debug"},
        {"terminating": True},
        {"terminating": True, "phase": "Failed", "exit_code": 143},
    ],
)
def test_a_pod_that_is_not_of_this_attempt_and_a_place_is_a_leftover(odd: dict[str, Any]) -> None:
    job = a_job(workers=2, attempt=1)
    observed = world_of(job, Children((a_pod(job, "worker", 0), a_pod(job, "worker", 1, **odd))))
    assert len(observed.obsolete_pods) == 1
    assert observed.missing == [(Role.WORKER, 1)]


def test_a_pod_that_is_deleted_after_its_success_keeps_its_place() -> None:
    job = a_job(workers=1)
    assert not world_of(job, Children((a_pod(job, "worker", 0, exit_code=0, terminating=True),))).obsolete_pods


def test_a_pod_that_the_go_operator_never_released_is_made_again_and_one_that_runs_is_not() -> None:
    job = a_job(workers=2)
    pods = (a_pod(job, "worker", 0, created_by_us=False), a_pod(job, "worker", 1, created_by_us=False, phase="Pending"))
    assert [pod.name for pod in world_of(job, Children(pods)).obsolete_pods] == ["mnist-worker-1"]
    assert not world_of(job, Children(pods, (a_go_barrier(job),))).obsolete_pods


def test_the_barrier_is_the_config_map_with_the_jobs_name() -> None:
    job = a_job(workers=1)
    other = msgspec.structs.replace(a_barrier(job), name="other")
    assert world_of(job, Children(config_maps=(other,))).barrier is None
    assert world_of(job, Children(config_maps=(other, a_barrier(job)))).barrier == a_barrier(job)


# What a pod counts as


@pytest.mark.parametrize(
    ("told", "sort"),
    [
        ({"phase": "Pending"}, "pending"),
        ({"phase": "Pending", "address": "10.0.0.1"}, "starting"),
        ({"phase": "Running"}, "running"),
        ({"phase": "Running", "ready": False}, "starting"),
        ({"phase": "Succeeded"}, "succeeded"),
        ({"phase": "Failed"}, "failed"),
        ({"phase": "Failed", "exit_code": 0}, "succeeded"),
        ({"phase": "Failed", "exit_code": 0, "exit_reason": "Completed"}, "succeeded"),
        ({"phase": "Failed", "exit_code": 0, "exit_reason": "Evicted"}, "failed"),
        ({"phase": "Failed", "exit_code": 0, "created_by_us": False}, "failed"),
        ({"phase": "Unknown"}, "unknown"),
        ({"phase": ""}, "unknown"),
    ],
)
def test_a_pod_is_counted_by_its_phase(told: dict[str, Any], sort: str) -> None:
    job = a_job(workers=1)
    assert world_of(job, Children()).pod_state(Role.WORKER, a_pod(job, "worker", 0, **told)) == sort


@pytest.mark.parametrize(
    ("policy", "code", "sort"),
    [
        (None, 0, "succeeded"),
        (None, 1, "failed"),
        ("Never", 1, "failed"),
        ("OnFailure", 0, "succeeded"),
        ("OnFailure", 1, "starting"),
        ("Always", 0, "starting"),
        ("Always", 1, "starting"),
    ],
)
def test_a_sidecar_that_runs_on_does_not_keep_a_pod_from_its_end(policy: str | None, code: int, sort: str) -> None:
    template = a_template(restartPolicy=policy) if policy else a_template()
    job = a_job(workers=1, template=template)
    pod = a_pod(job, "worker", 0, phase="Running", ready=False, exit_code=code)
    assert world_of(job, Children()).pod_state(Role.WORKER, pod) == sort


def test_of_a_go_operators_pod_only_its_phase_is_known() -> None:
    """It gave workers of Service mode OnFailure where the template says nothing."""
    job = a_job(workers=1, intranet="Service")
    pod = a_pod(job, "worker", 0, phase="Running", ready=False, exit_code=1, created_by_us=False)
    assert world_of(job, Children()).pod_state(Role.WORKER, pod) == "starting"


# Released, spent


def test_a_barrier_of_this_attempt_has_released_the_pods() -> None:
    job = a_job(workers=1, attempt=1)
    assert world_of(job, running(job)).released
    assert not world_of(job, Children(config_maps=(a_barrier(job, attempt=0),))).released
    assert not world_of(job, Children(all_pods(job, phase="Pending"))).released


def test_pods_that_run_were_released_even_if_somebody_deleted_the_barrier_since() -> None:
    job = a_job(workers=1)
    assert world_of(job, Children(all_pods(job))).released


def counting(job: Job, **counts: Any) -> Job:
    """As the last status counted its workers."""
    status = msgspec.structs.replace(job.status, worker=RoleStatus(**counts), selector="created_by_us")
    return msgspec.structs.replace(job, status=status)


def test_a_worker_that_vanished_after_its_success_is_spent_and_not_missing() -> None:
    job = counting(a_job(workers=2), replicas=2, succeeded=1, running=1)
    observed = world_of(job, without(running(job), "mnist-worker-0"))
    assert observed.succeeded_and_deleted[Role.WORKER] == 1
    assert observed.missing == []


def test_it_stays_spent_also_when_the_next_one_succeeds() -> None:
    job = counting(a_job(workers=2), replicas=1, succeeded=1, running=1)
    next_one = replaced(running(job), a_pod(job, "worker", 1, exit_code=0))
    for children in (running(job), next_one):
        assert world_of(job, without(children, "mnist-worker-0")).succeeded_and_deleted[Role.WORKER] == 1
    assert is_succeeded(world_of(job, without(next_one, "mnist-worker-0")))


def test_where_more_vanished_than_had_succeeded_all_are_missing() -> None:
    job = counting(a_job(workers=3), replicas=3, succeeded=1, running=2)
    observed = world_of(job, without(running(job), "mnist-worker-0", "mnist-worker-1"))
    assert observed.succeeded_and_deleted[Role.WORKER] == 0
    assert len(observed.missing) == 2


def test_a_success_that_is_still_to_be_seen_is_not_another_ones() -> None:
    job = counting(a_job(workers=2), replicas=2, succeeded=1, running=1)
    children = replaced(running(job), a_pod(job, "worker", 1, exit_code=0))
    assert world_of(job, without(children, "mnist-worker-0")).missing == [(Role.WORKER, 0)]


def test_the_counts_of_the_go_operator_say_nothing_of_who_vanished() -> None:
    """It wrote no number of pods: all that it counted would seem to have vanished."""
    job = a_job(workers=2, worker=RoleStatus(succeeded=1, running=1))
    children = replaced(running(job), a_pod(job, "worker", 1, exit_code=0))
    assert world_of(job, without(children, "mnist-worker-0")).missing == [(Role.WORKER, 0)]


def test_before_the_barrier_nobody_is_spent() -> None:
    job = counting(a_job(workers=2), replicas=2, succeeded=2)
    assert len(world_of(job, Children()).missing) == 2


def test_all_workers_decide_and_where_there_are_none_everybody() -> None:
    both = a_job(ps=1, workers=1)
    assert is_succeeded(world_of(both, replaced(running(both), a_pod(both, "worker", 0, exit_code=0))))
    assert not is_succeeded(world_of(both, replaced(running(both), a_pod(both, "ps", 0, exit_code=0))))
    servers = a_job(ps=1, heter=1)
    assert not is_succeeded(world_of(servers, replaced(running(servers), a_pod(servers, "ps", 0, exit_code=0))))
    assert is_succeeded(world_of(servers, Children(all_pods(servers, exit_code=0))))


# Refusals


def test_a_refusal_counts_only_while_its_object_is_wanted_and_not_there() -> None:
    job = a_job(workers=2, intranet="Service")
    refusals = (
        a_refusal(job, "pods", "mnist-worker-0"),
        a_refusal(job, "pods", "mnist-worker-1"),
        a_refusal(job, "pods", "mnist-worker-7"),
        a_refusal(job, "services", "mnist-worker-0"),
        a_refusal(job, "services", "mnist-worker-1"),
        a_refusal(job, "configmaps", "mnist"),
        a_refusal(job, "configmaps", "other"),
        a_refusal(job, "podgroups", "mnist"),
    )
    pod, service = a_pod(job, "worker", 0, phase="Pending"), a_service(job, "worker", 0)
    observed = world_of(job, Children((pod,), (), (service,), refusals))
    assert [(each.kind, each.key.name) for each in observed.refusals] == [
        ("pods", "mnist-worker-1"),
        ("services", "mnist-worker-1"),
        ("configmaps", "mnist"),
        ("podgroups", "mnist"),
    ]
    grouped = world_of(job, Children((pod,), (), (service,), refusals, a_group(job)))
    assert "podgroups" not in [each.kind for each in grouped.refusals]
    open_ = world_of(job, Children((pod,), (a_barrier(job),), (service,), refusals))
    assert ("configmaps", "mnist") not in [(each.kind, each.key.name) for each in open_.refusals]
