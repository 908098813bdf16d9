"""Builders of jobs, pods and other children for tests of plan(): valid by default, with fixed timestamps."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from paddle_operator.api.paddlejob import (
    CleanPodPolicy,
    Condition,
    Intranet,
    PaddleJobSpec,
    PaddleJobStatus,
    Role,
    RoleSpec,
)
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, Key, Meta, Resource
from paddle_operator.kube.writes import Create, Delete, DeleteAll, Patch, Refusal, Write
from paddle_operator.plan.children import Children, ChildView, PodView
from paddle_operator.plan.endpoints import endpoints_of
from paddle_operator.plan.job_view import Job, JobPlan
from paddle_operator.plan.metadata import pod_name, replicas_text
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.pod_group import GroupView

T0 = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
SECONDS = timedelta(seconds=1)
UID = "f206587f-5dee-46f5-9399-e835bde02487"
IMAGE = "registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1"
GO_FINALIZER = "finalizers.paddlepaddle.org"
ETCD = PlanContext(etcd="10.0.0.9:2379")
VOLCANO = PlanContext(scheduling="volcano")

JSONObject = dict[str, Any]


def make_template(container: JSONObject | None = None, *others: JSONObject, **spec: object) -> JSONObject:
    """A pod template: fields of the container `paddle`, other containers, fields of the pod spec."""
    return {"spec": {"containers": [{"name": "paddle", "image": IMAGE, **(container or {})}, *others], **spec}}


def make_job(
    name: str = "mnist",
    *,
    ps: int = 0,
    workers: int = 0,
    heter: int = 0,
    template: JSONObject | None = None,
    intranet: str = "PodIP",
    clean: str | None = None,
    requests: int | None = None,
    limits: int | None = None,
    with_gloo: int | None = None,
    elastic: int | None = None,
    policies: JSONObject | None = None,
    status: PaddleJobStatus | None = None,
    finalizers: tuple[str, ...] = (),
    deleted_at: datetime | None = None,
    **status_fields: Any,
) -> Job:
    """A job whose roles have one template. `policies` are further fields of the spec in YAML spelling: backoffLimit, …

    Further keyword arguments are fields of its status: phase, attempt, host_port, …
    """
    counts = {Role.PS: ps, Role.WORKER: workers, Role.HETER: heter}
    template = template or make_template()
    roles: JSONObject = {
        str(role): RoleSpec(
            count,
            template,
            requests=requests if role is Role.WORKER else None,
            limits=limits if role is Role.WORKER else None,
        )
        for role, count in counts.items()
        if count
    }
    spec = msgspec.structs.replace(
        msgspec.convert(policies or {}, PaddleJobSpec),
        clean_pod_policy=CleanPodPolicy(clean) if clean else None,
        intranet=Intranet(intranet),
        with_gloo=with_gloo,
        elastic=elastic,
        **roles,
    )
    meta = Meta(
        name=name,
        namespace="paddle-system",
        uid=UID,
        resource_version="7",
        generation=1,
        finalizers=finalizers,
        deletion_timestamp=deleted_at,
    )
    return Job(meta, spec, status or PaddleJobStatus(**status_fields))


def with_spec(job: Job, **fields: Any) -> Job:
    """The job with other values of fields of its spec."""
    assert job.spec
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **fields))


def with_replicas(job: Job, **roles: int) -> Job:
    assert job.spec
    parts = {name: msgspec.structs.replace(getattr(job.spec, name), replicas=count) for name, count in roles.items()}
    return with_spec(job, **parts)


def with_status(job: Job, status: PaddleJobStatus) -> Job:
    return msgspec.structs.replace(job, status=status)


def pod_address(role: str, index: int) -> str:
    return f"10.{list(Role).index(Role(role)) + 1}.{index // 250}.{index % 250 + 1}"


def make_pod(job: Job, role: str, index: int, **overrides: Any) -> PodView:
    """A running pod; with an exit code, a finished one. `overrides` are further fields."""
    exit_code = overrides.get("exit_code")
    phase = overrides.setdefault("phase", "Running" if exit_code is None else "Failed" if exit_code else "Succeeded")
    has_run = phase != "Pending"
    fields: JSONObject = {
        "namespace": job.key.namespace,
        "name": pod_name(job.key, Role(role), index),
        "version": 1,
        "owner_uid": job.uid,
        "attempt": job.status.attempt,
        "nudged_for": "",
        "ready": phase == "Running",
        "started": has_run,
        "terminating": False,
        "deadline_seconds": None,
        "created_by_us": True,
        "address": pod_address(role, index) if has_run else "",
        "node": f"node-{index}" if has_run else "",
        "node_address": f"192.168.0.{index % 250 + 1}" if has_run else "",
        "waiting": "",
        "waiting_message": "",
        "unschedulable": "",
        "restarts": 0,
        "exit_code": None,
        "exit_reason": "",
        "exit_message": "",
        "failed_container": "",
        "finished_at": None,
        "disrupted": False,
        "terminates_by": None,
    } | overrides
    fields.setdefault("uid", f"{fields['name']}-{fields['attempt']}")
    return PodView(**fields)


def make_waiting_pod(job: Job, role: str, index: int, **overrides: Any) -> PodView:
    """A pod with an address whose container waits for the barrier."""
    message = f'configmap "{job.key.name}" not found'
    waiting = {"waiting": "CreateContainerConfigError", "waiting_message": message}
    fields = {"address": pod_address(role, index), "node": f"node-{index}", "node_address": f"192.168.0.{index + 1}"}
    return make_pod(job, role, index, phase="Pending", **waiting | fields | overrides)


def make_pods(job: Job, **overrides: Any) -> tuple[PodView, ...]:
    assert job.spec
    return tuple(
        make_pod(job, role, index, **overrides)
        for role, part in job.spec.roles.items()
        for index in range(part.replicas)
    )


def make_waiting_pods(job: Job, **overrides: Any) -> tuple[PodView, ...]:
    assert job.spec
    return tuple(
        make_waiting_pod(job, role, index, **overrides)
        for role, part in job.spec.roles.items()
        for index in range(part.replicas)
    )


def make_service(job: Job, role: str, index: int, **overrides: Any) -> ChildView:
    return _child(job, pod_name(job.key, Role(role), index), **overrides)


def make_services(job: Job, **overrides: Any) -> tuple[ChildView, ...]:
    assert job.spec
    return tuple(
        make_service(job, role, index, **overrides)
        for role, part in job.spec.roles.items()
        for index in range(part.replicas)
    )


def make_barrier(job: Job, pods: Iterable[PodView] = (), **overrides: Any) -> ChildView:
    """The barrier ConfigMap for the addresses of these pods, by default of `make_pods`."""
    assert job.spec
    observed = ObservedJob(job, job.spec, Children(tuple(pods) or make_pods(job), services=make_services(job)))
    known = endpoints_of(observed)
    assert known
    return _child(
        job, job.key.name, **{"replicas": replicas_text(job.spec), "endpoints_digest": known.digest} | overrides
    )


def make_go_barrier(job: Job) -> ChildView:
    return _child(job, job.key.name, created_by_us=False)


def _child(job: Job, name: str, **overrides: Any) -> ChildView:
    fields: JSONObject = {
        "namespace": job.key.namespace,
        "uid": f"child-{name}-{job.status.attempt}",
        "version": 1,
        "owner_uid": job.uid,
        "attempt": job.status.attempt,
        "replicas": "",
        "endpoints_digest": "",
        "created_by_us": True,
        "terminating": False,
    } | overrides
    return ChildView(name=name, **fields)


def make_group(job: Job, phase: str = "Running", **overrides: Any) -> GroupView:
    """A PodGroup of the job's name, by default owned by the job."""
    fields: JSONObject = {
        "namespace": job.key.namespace,
        "name": job.key.name,
        "uid": "group-1",
        "version": 1,
        "owner_uid": job.uid,
        "unschedulable_message": "",
        "min_member": job.spec.total if job.spec else 0,
        "min_resources": {},
        "queue": "",
        "priority_class": "",
        "terminating": False,
        "created_at": T0 - 60 * SECONDS,
    } | overrides
    return GroupView(phase=phase, **fields)


def make_refusal(job: Job, kind: str, name: str, **overrides: Any) -> Refusal:
    fields: JSONObject = {
        "reason": "QuotaExceeded",
        "message": "exceeded quota: pods",
        "retry_at": T0 + 4 * SECONDS,
    } | overrides
    return Refusal(kind, Key(job.key.namespace, name), **fields)


def make_running_children(job: Job, **overrides: Any) -> Children:
    """The children of a running job: all pods run and the barrier exists."""
    pods = make_pods(job, **overrides)
    return Children(pods, (make_barrier(job, pods),), _services_of_mode(job))


def _services_of_mode(job: Job) -> tuple[ChildView, ...]:
    assert job.spec
    return make_services(job) if job.spec.intranet is Intranet.SERVICE else ()


def with_pods(children: Children, *pods: PodView) -> Children:
    """The children with these pods in place of those with the same names."""
    names = {pod.name for pod in pods}
    others = tuple(pod for pod in children.pods if pod.name not in names)
    return replace(children, pods=(*others, *pods))


def without_pods(children: Children, *names: str) -> Children:
    others = tuple(pod for pod in children.pods if pod.name not in names)
    return replace(children, pods=others)


# Contents of a plan


def writes_of(desired: JobPlan) -> list[Write]:
    return [write for wave in desired.waves for write in wave]


def creates(desired: JobPlan, kind: Resource[Any] | None = None) -> list[str]:
    found = [each for each in writes_of(desired) if isinstance(each, Create)]
    return [each.key.name for each in found if kind is None or each.kind is kind]


def deletes(desired: JobPlan, kind: Resource[Any] | None = None) -> list[str]:
    found = [each for each in writes_of(desired) if isinstance(each, Delete)]
    return [each.key.name for each in found if kind is None or each.kind is kind]


def patches(desired: JobPlan) -> dict[str, JSONObject]:
    return {each.key.name: dict(each.change) for each in writes_of(desired) if isinstance(each, Patch)}


def deletes_all(desired: JobPlan) -> bool:
    return any(isinstance(each, DeleteAll) for each in writes_of(desired))


def manifest(desired: JobPlan, kind: Resource[Any], name: str) -> JSONObject:
    found = [each for each in writes_of(desired) if isinstance(each, Create)]
    return next(dict(each.manifest) for each in found if each.kind is kind and each.key.name == name)


def get_condition(status: PaddleJobStatus, type_: str) -> Condition:
    return next(each for each in status.conditions if each.type == type_)


def not_running_reason(desired: JobPlan) -> tuple[str, str]:
    found = get_condition(desired.status, "Running")
    return found.reason, found.message


def reasons(desired: JobPlan) -> list[str]:
    return [each.reason for each in desired.events]


def environment(job: Job, role: str, index: int, *, context: PlanContext | None = None) -> dict[str, str]:
    """The environment of the container `paddle` as kubelet builds it: the barrier, then its own variables."""
    assert job.spec
    children = Children(make_waiting_pods(job), services=make_services(job))
    initial_plan = plan(job, Children(services=children.services), T0, context)
    pod = manifest(initial_plan, PODS, pod_name(job.key, Role(role), index))
    container = next(each for each in pod["spec"]["containers"] if each["name"] == "paddle")
    env: dict[str, str] = {}
    if any(each.get("configMapRef") == {"name": job.key.name} for each in container.get("envFrom") or ()):
        env |= manifest(plan(job, children, T0, context), CONFIG_MAPS, job.key.name)["data"]
    env["POD_IP"] = pod_address(role, index)
    for each in container["env"]:
        if "value" in each:
            env[each["name"]] = each["value"].replace("$(POD_IP)", env["POD_IP"])
    return env
