"""An in-memory cluster on which plans are applied: API server, garbage collector and, on request, kubelets.

It asserts the preconditions of every write: no object is created twice, and none is changed that is not the job's or is
terminating already.
"""

import itertools
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from paddle_operator.api.paddlejob import PaddleJobStatus, read_status
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Object, Pod
from paddle_operator.kube.writes import Create, Delete, DeleteAll, EventIntent, Patch, Refusal, StatusOrder, Write
from paddle_operator.plan.children import Children, ChildView, PodView, child_view, pod_view
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, JobPlan
from paddle_operator.plan.metadata import ENDPOINTS_ANNOTATION, JOB_UID_LABEL
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.pod_group import POD_GROUPS, PodGroup, group_view
from paddle_operator.plan.status import BARRIER_WAIT_REASON
from tests.support.jobs import SECONDS, T0, with_status, writes_of

IDLE_RECONCILES = 3  # consecutive reconciles without a change
MAX_WAIT = timedelta(hours=1)  # a later requeue_at is not waited for
GRACE_PERIOD = timedelta(seconds=30)


class Model:
    def __init__(self, job: Job, children: Children, now: datetime, context: PlanContext | None = None) -> None:
        self.job = job
        self.now = now
        self.group = children.group
        self.pods: dict[str, PodView] = {pod.name: pod for pod in children.pods}
        self.config_maps: dict[str, ChildView] = {each.name: each for each in children.config_maps}
        self.services: dict[str, ChildView] = {each.name: each for each in children.services}
        self.refusals: dict[tuple[str, Key], Refusal] = {(each.kind, each.key): each for each in children.refusals}
        self.foreign_names: set[tuple[str, str]] = set()  # kinds and names of objects of other owners
        self.endpoints_digests: dict[str, str] = {}  # the endpoints with which a pod's container has started, by uid
        self.phases = [job.status.phase]
        self.unresponsive_nodes: set[str] = set()  # pods of these nodes stay terminating until they are force-deleted
        self.events: list[EventIntent] = []
        self.reconcile_count = 0
        self.deleted_at: datetime | None = None  # when the operator deleted the job
        self._context = context or PlanContext()
        self._status_written_at: datetime | None = None
        self._numbers = itertools.count(1)
        self._changed = False

    @property
    def status(self) -> PaddleJobStatus:
        return self.job.status

    @property
    def barrier(self) -> ChildView | None:
        return self.config_maps.get(self.job.key.name)

    def children(self) -> Children:
        return Children(
            tuple(self.pods.values()),
            tuple(self.config_maps.values()),
            tuple(self.services.values()),
            tuple(self.refusals.values()),
            self.group,
        )

    @property
    def event_reasons(self) -> list[str]:
        return [each.reason for each in self.events]

    # The operator

    def reconcile_and_advance(self) -> bool:
        """Reconcile, collect garbage and advance to requeue_at; returns whether anything changed or will."""
        before = self.now
        desired = self.reconcile()
        next_at = desired.requeue_at if desired.requeue_at and desired.requeue_at < before + MAX_WAIT else None
        self.now = max(next_at or before, before + SECONDS)
        return self._changed or next_at is not None

    def reconcile(self) -> JobPlan:
        """Reconcile and collect garbage; no time passes."""
        self._changed = False
        desired = self.plan()
        self.reconcile_count += 1
        self.events += desired.events
        if desired.status_order is not StatusOrder.DEFERRED:
            self._write_status(desired.status)
        for write in self._allowed_writes(desired):
            self._apply(write)
        self._collect_garbage()
        return desired

    def reconcile_until_idle(self) -> JobPlan:
        """Reconcile until nothing changes; returns the last plan with its requeue_at. No time passes."""
        for _ in range(40):
            desired = self.reconcile()
            if not self._changed:
                return desired
        raise AssertionError(f"reconcile does not converge: {desired}")

    def advance_to(self, instant: datetime) -> None:
        """Advance to an instant; reconcile only when a plan asked to be requeued."""
        desired = self.reconcile_until_idle()
        while desired.requeue_at and desired.requeue_at <= instant:
            assert desired.requeue_at > self.now, "requeue_at must be in the future"
            self.now = desired.requeue_at
            desired = self.reconcile_until_idle()
        self.now = instant

    def advance(self, seconds: float) -> None:
        self.advance_to(self.now + seconds * SECONDS)

    def run_until_idle(self, max_reconciles: int = 60) -> int:
        """Reconcile and advance until nothing changes; returns the number of reconciles."""
        idle = 0
        for number in range(max_reconciles):
            idle = 0 if self.reconcile_and_advance() else idle + 1
            if idle == IDLE_RECONCILES:
                return number
        raise AssertionError(f"after {max_reconciles} reconciles the model is not idle: {self.plan()}")

    def plan(self) -> JobPlan:
        return plan(
            self.job, self.children(), self.now, replace(self._context, status_written_at=self._status_written_at)
        )

    def _allowed_writes(self, desired: JobPlan) -> list[Write]:
        """The writes of the plan; none if another owner has one of its required names."""
        for kind, key in desired.required_names:
            self.refusals.pop((kind.plural, key), None)
            if (kind.plural, key.name) in self.foreign_names:
                self._reject(kind.plural, key)
                return []
        return writes_of(desired)

    def _reject(self, kind: str, key: Key) -> None:
        self._changed = True
        self.refusals[kind, key] = Refusal(kind, key, "NameConflict", "taken", self.now + 2 * SECONDS)

    def _write_status(self, desired: PaddleJobStatus) -> None:
        if desired == self.job.status:
            return
        stored = read_status(msgspec.json.encode(desired))
        assert stored == desired, "the status must survive encoding and decoding"
        version = str(self.job.version + 1)
        self.job = with_status(self.job, stored)
        self.job = msgspec.structs.replace(
            self.job, metadata=msgspec.structs.replace(self.job.metadata, resource_version=version)
        )
        self._status_written_at = self.now
        self._changed = True
        if stored.phase != self.phases[-1]:
            self.phases.append(stored.phase)

    def _apply(self, write: Write) -> None:
        self._changed = True
        match write:
            case Create():
                self._create(write)
            case Patch():
                self._patch(write)
            case Delete():
                self._delete(write)
            case DeleteAll():
                self._delete_all(write)

    def _create(self, write: Create) -> None:
        target, name = (write.kind.plural, write.key), write.key.name
        assert write.key.namespace == self.job.key.namespace
        refusal = self.refusals.get(target)
        assert refusal is None or refusal.retry_at <= self.now, f"{name} was refused and is retried too early"
        if (write.kind.plural, name) in self.foreign_names:
            self._reject(*target)
            return
        self.refusals.pop(target, None)
        metadata = {**write.manifest["metadata"], "uid": f"created-{next(self._numbers)}", "resourceVersion": "1"}
        if write.kind is POD_GROUPS:
            assert self.group is None, "the PodGroup exists"
            self.group = group_view(msgspec.convert({**write.manifest, "metadata": metadata}, PodGroup))
            return
        kind: dict[str, Any] = {PODS.plural: self.pods, CONFIG_MAPS.plural: self.config_maps}
        objects = kind.get(write.kind.plural, self.services)
        assert name not in objects, f"{write.kind} {name} exists"
        stored = {**write.manifest, "metadata": metadata}
        if write.kind is PODS:
            self.pods[name] = pod_view(msgspec.convert({**stored, "status": {"phase": "Pending"}}, Pod))
        else:
            objects[name] = child_view(msgspec.convert(stored, Object))

    def _patch(self, write: Patch) -> None:
        if write.kind is PADDLE_JOBS:
            finalizers = tuple(write.change["metadata"]["finalizers"])
            meta = msgspec.structs.replace(self.job.metadata, finalizers=finalizers)
            self.job = msgspec.structs.replace(self.job, metadata=meta)
            return
        if write.kind is POD_GROUPS:
            self._patch_group(write)
            return
        pod = self.pods[write.key.name]
        assert pod.uid == write.uid
        assert not pod.terminating
        annotations = write.change.get("metadata", {}).get("annotations", {})
        if ENDPOINTS_ANNOTATION in annotations:
            assert pod.waiting == BARRIER_WAIT_REASON
            assert pod.nudged_for != annotations[ENDPOINTS_ANNOTATION], "a pod is nudged once per endpoints"
            pod = msgspec.structs.replace(pod, nudged_for=annotations[ENDPOINTS_ANNOTATION])
        if "spec" in write.change:
            assert self.job.finished
            pod = msgspec.structs.replace(pod, phase="Failed", ready=False, deadline_seconds=1, exit_code=143)
        self.pods[pod.name] = pod

    def _patch_group(self, write: Patch) -> None:
        group = self.group
        assert group
        assert (group.uid, group.owner_uid) == (write.uid, self.job.uid), "a PodGroup of the user must not be changed"
        spec = write.change["spec"]
        min_resources = {**group.min_resources, **spec.get("minResources", {})}
        self.group = msgspec.structs.replace(
            group,
            min_member=spec.get("minMember", group.min_member),
            min_resources={name: value for name, value in min_resources.items() if value is not None},
            queue=spec.get("queue", group.queue),
            priority_class=spec.get("priorityClassName", group.priority_class),
        )

    def _delete(self, write: Delete) -> None:
        if write.kind is PADDLE_JOBS:
            self._delete_job(write)
            return
        kinds: dict[str, dict[str, Any]] = {
            PODS.plural: self.pods,
            CONFIG_MAPS.plural: self.config_maps,
            SERVICES.plural: self.services,
            POD_GROUPS.plural: {self.group.name: self.group} if self.group else {},
        }
        objects = kinds[write.kind.plural]
        found = objects[write.key.name]
        assert found.uid == write.uid
        assert found.owner_uid == self.job.uid
        if write.force:
            assert found.terminating, f"{found.name} was not deleted before"
            del objects[found.name]
            return
        assert not found.terminating, f"{found.name} is terminating already"
        if write.kind is POD_GROUPS:
            self.group = None
        else:
            objects[found.name] = self._terminating(found)

    def _delete_job(self, write: Delete) -> None:
        assert write.uid == self.job.uid
        assert self.deleted_at is None, "the job is deleted once"
        self.deleted_at = self.now
        meta = msgspec.structs.replace(self.job.metadata, deletion_timestamp=self.now)
        self.job = msgspec.structs.replace(self.job, metadata=meta)

    def _terminating(self, child: Any) -> Any:
        leaves = {"terminates_by": self.now + GRACE_PERIOD} if isinstance(child, PodView) else {}
        return msgspec.structs.replace(child, terminating=True, **leaves)

    def _delete_all(self, write: DeleteAll) -> None:
        kinds: dict[str, dict[str, Any]] = {PODS.plural: self.pods, SERVICES.plural: self.services}
        assert write.namespace == self.job.key.namespace
        assert write.labels == f"{JOB_UID_LABEL}={self.job.uid}"
        objects = kinds[write.kind.plural]
        for child in objects.values():
            assert child.created_by_us or child.terminating, "an object without our label would remain"
            objects[child.name] = child if child.terminating else self._terminating(child)

    def _collect_garbage(self) -> None:
        for objects in (self.pods, self.config_maps, self.services):
            assert isinstance(objects, dict)
            stuck = {name for name, each in self.pods.items() if each.node and each.node in self.unresponsive_nodes}
            terminating = {name for name, each in objects.items() if each.terminating}
            for name in terminating - stuck if objects is self.pods else terminating:
                del objects[name]
                self._changed = True

    # The user

    def update_spec(self, **fields: Any) -> None:
        """Change the spec and the generation."""
        assert self.job.spec
        meta = msgspec.structs.replace(self.job.metadata, generation=self.job.metadata.generation + 1)
        spec = msgspec.structs.replace(self.job.spec, **fields)
        self.job = msgspec.structs.replace(self.job, metadata=meta, spec=spec)

    def delete_pod(self, name: str) -> None:
        self.pods[name] = self._terminating(self.pods[name])

    # Volcano

    def admit_group(self, phase: str = "Inqueue") -> None:
        assert self.group
        self.group = msgspec.structs.replace(self.group, phase=phase)

    # The kubelets

    def run_all_pods(self) -> None:
        """Reconcile and run the kubelets until all pods run; no time passes."""
        self.reconcile_until_idle()
        for name in list(self.pods):
            self.assign_address(name)
        self.reconcile_until_idle()
        for name in list(self.pods):
            self.start_container(name)
        self.reconcile_until_idle()

    def assign_address(self, name: str) -> None:
        """Bind the pod and give it an address; its container then waits for the barrier, unless elastic."""
        pod = self.pods[name]
        assert self.job.spec
        if pod.phase != "Pending" or pod.address:
            return
        number = next(self._numbers)
        self.pods[name] = msgspec.structs.replace(
            pod,
            address=f"10.7.{number // 250 % 250}.{number % 250 + 1}",
            node=f"node-{number % 3}",
            node_address=f"192.168.0.{number % 3 + 1}",
            waiting="" if self.job.spec.is_elastic else BARRIER_WAIT_REASON,
            waiting_message=f'configmap "{self.job.key.name}" not found',
        )

    def start_container(self, name: str) -> None:
        """Start the container if the barrier exists or is not needed."""
        pod = self.pods[name]
        assert self.job.spec
        if pod.phase != "Pending" or not pod.address:
            return
        if not self.job.spec.is_elastic:
            if self.barrier is None:
                return
            self.endpoints_digests[pod.uid] = self.barrier.endpoints_digest
        self.pods[name] = msgspec.structs.replace(pod, phase="Running", ready=True, started=True, waiting="")

    def exit_pod(self, name: str, code: int, **overrides: Any) -> None:
        pod = self.pods[name]
        if pod.phase != "Running" or pod.terminating:
            return
        exited = {
            "phase": "Failed" if code else "Succeeded",
            "ready": False,
            "exit_code": code,
            "finished_at": self.now,
        }
        self.pods[name] = msgspec.structs.replace(pod, **exited | overrides)

    def restart_container(self, name: str, times: int = 1) -> None:
        """Restart the container as kubelet does under its restartPolicy."""
        pod = self.pods[name]
        if pod.phase == "Running":
            self.pods[name] = msgspec.structs.replace(pod, restarts=pod.restarts + times)

    def change_address(self, name: str) -> None:
        """Recreate the sandbox, which gets another address."""
        pod = self.pods[name]
        if pod.phase == "Running":
            number = next(self._numbers)
            self.pods[name] = msgspec.structs.replace(pod, address=f"10.8.{number // 250 % 250}.{number % 250 + 1}")


def start_scenario(job: Job, context: PlanContext | None = None) -> Model:
    """A model of a new job whose pods all run."""
    model = Model(job, Children(), T0, context)
    model.run_all_pods()
    return model
