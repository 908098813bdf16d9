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
    make_barrier,
    make_go_barrier,
    make_group,
    make_job,
    make_pod,
    make_pods,
    make_refusal,
    make_running_children,
    make_service,
    make_template,
    with_pods,
    without_pods,
)

TIME = "2026-05-04T12:00:00Z"


def observe(job: Job, children: Children) -> ObservedJob:
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


def test_first_of_two_addresses_is_used() -> None:
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


def test_waiting_reason_prefers_init_containers() -> None:
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


def test_failed_sidecar_is_named_if_main_never_ran() -> None:
    statuses = [{"name": "paddle", "state": {"waiting": {"reason": "ContainerCreating"}}}, ended("logs", 7)]
    view = seen({"phase": "Failed", "containerStatuses": statuses}, "paddle", "logs")
    assert (view.exit_code, view.failed_container) == (7, "logs")


def test_main_container_counts_if_a_sidecar_failed() -> None:
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
    job = make_job(workers=1)
    strays = Children(
        (make_pod(job, "worker", 0, namespace="elsewhere"),),
        (make_barrier(job, namespace="elsewhere"),),
        (make_service(job, "worker", 0, namespace="elsewhere"),),
    )
    assert strays.in_namespace("paddle-system") == Children()
    assert strays.in_namespace("elsewhere") is strays


# Places


def test_pods_are_ordered_by_role_and_index() -> None:
    job = make_job(ps=1, workers=11, heter=1)
    pods = make_pods(job)
    observed = observe(job, Children(tuple(reversed(pods))))
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
def test_pod_of_another_attempt_is_obsolete(odd: dict[str, Any]) -> None:
    job = make_job(workers=2, attempt=1)
    observed = observe(job, Children((make_pod(job, "worker", 0), make_pod(job, "worker", 1, **odd))))
    assert len(observed.obsolete_pods) == 1
    assert observed.missing == [(Role.WORKER, 1)]


def test_a_pod_that_is_deleted_after_its_success_keeps_its_place() -> None:
    job = make_job(workers=1)
    assert not observe(job, Children((make_pod(job, "worker", 0, exit_code=0, terminating=True),))).obsolete_pods


def test_unreleased_go_pod_is_obsolete() -> None:
    job = make_job(workers=2)
    pods = (
        make_pod(job, "worker", 0, created_by_us=False),
        make_pod(job, "worker", 1, created_by_us=False, phase="Pending"),
    )
    assert [pod.name for pod in observe(job, Children(pods)).obsolete_pods] == ["mnist-worker-1"]
    assert not observe(job, Children(pods, (make_go_barrier(job),))).obsolete_pods


def test_the_barrier_is_the_config_map_with_the_jobs_name() -> None:
    job = make_job(workers=1)
    other = msgspec.structs.replace(make_barrier(job), name="other")
    assert observe(job, Children(config_maps=(other,))).barrier is None
    assert observe(job, Children(config_maps=(other, make_barrier(job)))).barrier == make_barrier(job)


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
    job = make_job(workers=1)
    assert observe(job, Children()).pod_state(Role.WORKER, make_pod(job, "worker", 0, **told)) == sort


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
    template = make_template(restartPolicy=policy) if policy else make_template()
    job = make_job(workers=1, template=template)
    pod = make_pod(job, "worker", 0, phase="Running", ready=False, exit_code=code)
    assert observe(job, Children()).pod_state(Role.WORKER, pod) == sort


def test_of_a_go_operators_pod_only_its_phase_is_known() -> None:
    """It gave workers of Service mode OnFailure where the template says nothing."""
    job = make_job(workers=1, intranet="Service")
    pod = make_pod(job, "worker", 0, phase="Running", ready=False, exit_code=1, created_by_us=False)
    assert observe(job, Children()).pod_state(Role.WORKER, pod) == "starting"


# Released, spent


def test_a_barrier_of_this_attempt_has_released_the_pods() -> None:
    job = make_job(workers=1, attempt=1)
    assert observe(job, make_running_children(job)).released
    assert not observe(job, Children(config_maps=(make_barrier(job, attempt=0),))).released
    assert not observe(job, Children(make_pods(job, phase="Pending"))).released


def test_started_pods_were_released() -> None:
    job = make_job(workers=1)
    assert observe(job, Children(make_pods(job))).released


def counting(job: Job, **counts: Any) -> Job:
    """As the last status counted its workers."""
    status = msgspec.structs.replace(job.status, worker=RoleStatus(**counts), selector="created_by_us")
    return msgspec.structs.replace(job, status=status)


def test_deleted_succeeded_worker_is_not_missing() -> None:
    job = counting(make_job(workers=2), replicas=2, succeeded=1, running=1)
    observed = observe(job, without_pods(make_running_children(job), "mnist-worker-0"))
    assert observed.succeeded_and_deleted[Role.WORKER] == 1
    assert observed.missing == []


def test_it_stays_spent_also_when_the_next_one_succeeds() -> None:
    job = counting(make_job(workers=2), replicas=1, succeeded=1, running=1)
    next_one = with_pods(make_running_children(job), make_pod(job, "worker", 1, exit_code=0))
    for children in (make_running_children(job), next_one):
        assert observe(job, without_pods(children, "mnist-worker-0")).succeeded_and_deleted[Role.WORKER] == 1
    assert is_succeeded(observe(job, without_pods(next_one, "mnist-worker-0")))


def test_where_more_vanished_than_had_succeeded_all_are_missing() -> None:
    job = counting(make_job(workers=3), replicas=3, succeeded=1, running=2)
    observed = observe(job, without_pods(make_running_children(job), "mnist-worker-0", "mnist-worker-1"))
    assert observed.succeeded_and_deleted[Role.WORKER] == 0
    assert len(observed.missing) == 2


def test_a_success_that_is_still_to_be_seen_is_not_another_ones() -> None:
    job = counting(make_job(workers=2), replicas=2, succeeded=1, running=1)
    children = with_pods(make_running_children(job), make_pod(job, "worker", 1, exit_code=0))
    assert observe(job, without_pods(children, "mnist-worker-0")).missing == [(Role.WORKER, 0)]


def test_go_status_counts_are_not_used_for_deleted_pods() -> None:
    """It wrote no number of pods: all that it counted would seem to have vanished."""
    job = make_job(workers=2, worker=RoleStatus(succeeded=1, running=1))
    children = with_pods(make_running_children(job), make_pod(job, "worker", 1, exit_code=0))
    assert observe(job, without_pods(children, "mnist-worker-0")).missing == [(Role.WORKER, 0)]


def test_before_the_barrier_nobody_is_spent() -> None:
    job = counting(make_job(workers=2), replicas=2, succeeded=2)
    assert len(observe(job, Children()).missing) == 2


def test_all_workers_decide_and_where_there_are_none_everybody() -> None:
    both = make_job(ps=1, workers=1)
    assert is_succeeded(observe(both, with_pods(make_running_children(both), make_pod(both, "worker", 0, exit_code=0))))
    assert not is_succeeded(observe(both, with_pods(make_running_children(both), make_pod(both, "ps", 0, exit_code=0))))
    servers = make_job(ps=1, heter=1)
    assert not is_succeeded(
        observe(servers, with_pods(make_running_children(servers), make_pod(servers, "ps", 0, exit_code=0)))
    )
    assert is_succeeded(observe(servers, Children(make_pods(servers, exit_code=0))))


# Refusals


def test_refusal_counts_only_while_object_is_missing() -> None:
    job = make_job(workers=2, intranet="Service")
    refusals = (
        make_refusal(job, "pods", "mnist-worker-0"),
        make_refusal(job, "pods", "mnist-worker-1"),
        make_refusal(job, "pods", "mnist-worker-7"),
        make_refusal(job, "services", "mnist-worker-0"),
        make_refusal(job, "services", "mnist-worker-1"),
        make_refusal(job, "configmaps", "mnist"),
        make_refusal(job, "configmaps", "other"),
        make_refusal(job, "podgroups", "mnist"),
    )
    pod, service = make_pod(job, "worker", 0, phase="Pending"), make_service(job, "worker", 0)
    observed = observe(job, Children((pod,), (), (service,), refusals))
    assert [(each.kind, each.key.name) for each in observed.refusals] == [
        ("pods", "mnist-worker-1"),
        ("services", "mnist-worker-1"),
        ("configmaps", "mnist"),
        ("podgroups", "mnist"),
    ]
    grouped = observe(job, Children((pod,), (), (service,), refusals, make_group(job)))
    assert "podgroups" not in [each.kind for each in grouped.refusals]
    open_ = observe(job, Children((pod,), (make_barrier(job),), (service,), refusals))
    assert ("configmaps", "mnist") not in [(each.kind, each.key.name) for each in open_.refusals]
