"""Jobs and their objects as a test describes them: right unless told otherwise, and every instant is a value."""

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

Written = dict[str, Any]


def make_template(container: Written | None = None, *others: Written, **spec: object) -> Written:
    """One container named `paddle`, and what is said of it; then the other containers, then fields of the pod."""
    return {"spec": {"containers": [{"name": "paddle", "image": IMAGE, **(container or {})}, *others], **spec}}


def make_job(
    name: str = "mnist",
    *,
    ps: int = 0,
    workers: int = 0,
    heter: int = 0,
    template: Written | None = None,
    intranet: str = "PodIP",
    clean: str | None = None,
    requests: int | None = None,
    limits: int | None = None,
    with_gloo: int | None = None,
    elastic: int | None = None,
    policies: Written | None = None,
    status: PaddleJobStatus | None = None,
    finalizers: tuple[str, ...] = (),
    deleted_at: datetime | None = None,
    **told: Any,
) -> Job:
    """Every role has the same template. `policies` are further fields of the spec, as users write them: backoffLimit, …

    What is told beyond the spec is its status: phase, attempt, host_port, …
    """
    counts = {Role.PS: ps, Role.WORKER: workers, Role.HETER: heter}
    template = template or make_template()
    roles: Written = {
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
    return Job(meta, spec, status or PaddleJobStatus(**told))


def changed(job: Job, **fields: Any) -> Job:
    """The job with another spec: a field of it at a time."""
    assert job.spec
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **fields))


def scaled(job: Job, **roles: int) -> Job:
    assert job.spec
    parts = {name: msgspec.structs.replace(getattr(job.spec, name), replicas=count) for name, count in roles.items()}
    return changed(job, **parts)


def with_status(job: Job, status: PaddleJobStatus) -> Job:
    return msgspec.structs.replace(job, status=status)


def address(role: str, index: int) -> str:
    return f"10.{list(Role).index(Role(role)) + 1}.{index // 250}.{index % 250 + 1}"


def make_pod(job: Job, role: str, index: int, **told: Any) -> PodView:
    """A pod that runs, unless told otherwise: with an exit code, it has ended with that."""
    exit_code = told.get("exit_code")
    phase = told.setdefault("phase", "Running" if exit_code is None else "Failed" if exit_code else "Succeeded")
    has_run = phase != "Pending"
    fields: Written = {
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
        "address": address(role, index) if has_run else "",
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
    } | told
    fields.setdefault("uid", f"{fields['name']}-{fields['attempt']}")
    return PodView(**fields)


def held_back(job: Job, role: str, index: int, **told: Any) -> PodView:
    """A pod that has its address, and whose container waits for the barrier."""
    message = f'configmap "{job.key.name}" not found'
    waits = {"waiting": "CreateContainerConfigError", "waiting_message": message}
    known = {"address": address(role, index), "node": f"node-{index}", "node_address": f"192.168.0.{index + 1}"}
    return make_pod(job, role, index, phase="Pending", **waits | known | told)


def all_pods(job: Job, **told: Any) -> tuple[PodView, ...]:
    assert job.spec
    return tuple(
        make_pod(job, role, index, **told) for role, part in job.spec.roles.items() for index in range(part.replicas)
    )


def all_held_back(job: Job, **told: Any) -> tuple[PodView, ...]:
    assert job.spec
    return tuple(
        held_back(job, role, index, **told) for role, part in job.spec.roles.items() for index in range(part.replicas)
    )


def make_service(job: Job, role: str, index: int, **told: Any) -> ChildView:
    return _child(job, pod_name(job.key, Role(role), index), **told)


def all_services(job: Job, **told: Any) -> tuple[ChildView, ...]:
    assert job.spec
    return tuple(
        make_service(job, role, index, **told)
        for role, part in job.spec.roles.items()
        for index in range(part.replicas)
    )


def make_barrier(job: Job, pods: Iterable[PodView] = (), **told: Any) -> ChildView:
    """The one that was written when these pods, or else the usual ones, had their addresses."""
    assert job.spec
    observed = ObservedJob(job, job.spec, Children(tuple(pods) or all_pods(job), services=all_services(job)))
    known = endpoints_of(observed)
    assert known
    return _child(job, job.key.name, **{"replicas": replicas_text(job.spec), "endpoints_digest": known.digest} | told)


def make_go_barrier(job: Job) -> ChildView:
    return _child(job, job.key.name, created_by_us=False)


def _child(job: Job, name: str, **told: Any) -> ChildView:
    fields: Written = {
        "namespace": job.key.namespace,
        "uid": f"child-{name}-{job.status.attempt}",
        "version": 1,
        "owner_uid": job.uid,
        "attempt": job.status.attempt,
        "replicas": "",
        "endpoints_digest": "",
        "created_by_us": True,
        "terminating": False,
    } | told
    return ChildView(name=name, **fields)


def make_group(job: Job, phase: str = "Running", **told: Any) -> GroupView:
    """A PodGroup of the job's name: the job's own, unless told otherwise."""
    fields: Written = {
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
    } | told
    return GroupView(phase=phase, **fields)


def make_refusal(job: Job, kind: str, name: str, **told: Any) -> Refusal:
    said: Written = {"reason": "QuotaExceeded", "message": "exceeded quota: pods", "retry_at": T0 + 4 * SECONDS} | told
    return Refusal(kind, Key(job.key.namespace, name), **said)


def running(job: Job, **told: Any) -> Children:
    """A job in full swing: every pod runs, the barrier is open."""
    pods = all_pods(job, **told)
    return Children(pods, (make_barrier(job, pods),), _its_services(job))


def _its_services(job: Job) -> tuple[ChildView, ...]:
    assert job.spec
    return all_services(job) if job.spec.intranet is Intranet.SERVICE else ()


def replaced(children: Children, *pods: PodView) -> Children:
    """With these instead of those that have their names."""
    names = {pod.name for pod in pods}
    kept = tuple(pod for pod in children.pods if pod.name not in names)
    return replace(children, pods=(*kept, *pods))


def without(children: Children, *names: str) -> Children:
    kept = tuple(pod for pod in children.pods if pod.name not in names)
    return replace(children, pods=kept)


# What a plan says


def writes_of(desired: JobPlan) -> list[Write]:
    return [write for wave in desired.waves for write in wave]


def creates(desired: JobPlan, kind: Resource[Any] | None = None) -> list[str]:
    found = [each for each in writes_of(desired) if isinstance(each, Create)]
    return [each.key.name for each in found if kind is None or each.kind is kind]


def deletes(desired: JobPlan, kind: Resource[Any] | None = None) -> list[str]:
    found = [each for each in writes_of(desired) if isinstance(each, Delete)]
    return [each.key.name for each in found if kind is None or each.kind is kind]


def patches(desired: JobPlan) -> dict[str, Written]:
    return {each.key.name: dict(each.change) for each in writes_of(desired) if isinstance(each, Patch)}


def deletes_all(desired: JobPlan) -> bool:
    return any(isinstance(each, DeleteAll) for each in writes_of(desired))


def manifest(desired: JobPlan, kind: Resource[Any], name: str) -> Written:
    found = [each for each in writes_of(desired) if isinstance(each, Create)]
    return next(dict(each.manifest) for each in found if each.kind is kind and each.key.name == name)


def the_condition(status: PaddleJobStatus, type_: str) -> Condition:
    return next(each for each in status.conditions if each.type == type_)


def why_not_running(desired: JobPlan) -> tuple[str, str]:
    found = the_condition(desired.status, "Running")
    return found.reason, found.message


def reasons(desired: JobPlan) -> list[str]:
    return [each.reason for each in desired.events]


def environment(job: Job, role: str, index: int, *, context: PlanContext | None = None) -> dict[str, str]:
    """What the container named `paddle` would see, as kubelet puts it together: the barrier, then the pod's own."""
    assert job.spec
    there = Children(all_held_back(job), services=all_services(job))
    first = plan(job, Children(services=there.services), T0, context)
    pod = manifest(first, PODS, pod_name(job.key, Role(role), index))
    container = next(each for each in pod["spec"]["containers"] if each["name"] == "paddle")
    env: dict[str, str] = {}
    if any(each.get("configMapRef") == {"name": job.key.name} for each in container.get("envFrom") or ()):
        env |= manifest(plan(job, there, T0, context), CONFIG_MAPS, job.key.name)["data"]
    env["POD_IP"] = address(role, index)
    for each in container["env"]:
        if "value" in each:
            env[each["name"]] = each["value"].replace("$(POD_IP)", env["POD_IP"])
    return env
