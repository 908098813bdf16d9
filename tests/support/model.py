"""A model of the cluster that plans are carried out on: what is created appears, what is deleted leaves and is gone.

It plays the API server, the garbage collector and, when asked, the kubelets. It asserts what must hold of every write:
nothing is created that exists, nothing is touched that is not the job's or is leaving already.
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

QUIET = 3  # passes in a row that change nothing
FAR = timedelta(hours=1)  # a time that far ahead is not waited for
GRACE = timedelta(seconds=30)


class Model:
    def __init__(self, job: Job, children: Children, now: datetime, context: PlanContext | None = None) -> None:
        self.job = job
        self.now = now
        self.group = children.group
        self.pods: dict[str, PodView] = {pod.name: pod for pod in children.pods}
        self.config_maps: dict[str, ChildView] = {each.name: each for each in children.config_maps}
        self.services: dict[str, ChildView] = {each.name: each for each in children.services}
        self.refusals: dict[tuple[str, Key], Refusal] = {(each.kind, each.key): each for each in children.refusals}
        self.taken: set[tuple[str, str]] = set()  # kinds and names that somebody else's objects have
        self.started_with: dict[str, str] = {}  # the contract that a pod's container has read, by uid
        self.phases = [job.status.phase]
        self.silent: set[str] = set()  # nodes whose kubelet does not answer: pods there do not go by themselves
        self.events: list[EventIntent] = []  # all of it
        self.passes = 0
        self.deleted_at: datetime | None = None  # when the operator deleted the job
        self._around = context or PlanContext()
        self._written_at: datetime | None = None
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
    def told(self) -> list[str]:
        return [each.reason for each in self.events]

    # The operator

    def step(self) -> bool:
        """One pass, and what follows of it by itself, and then time; says whether anything changed or will."""
        before = self.now
        desired = self.look()
        soon = desired.requeue_at if desired.requeue_at and desired.requeue_at < before + FAR else None
        self.now = max(soon or before, before + SECONDS)
        return self._changed or soon is not None

    def look(self) -> JobPlan:
        """One pass, and what follows of it by itself; no time passes."""
        self._changed = False
        desired = self.plan()
        self.passes += 1
        self.events += desired.events
        if desired.status_order is not StatusOrder.DEFERRED:
            self._write_status(desired.status)
        for write in self._allowed(desired):
            self._carry_out(write)
        self._collect_garbage()
        return desired

    def rest(self) -> JobPlan:
        """Pass after pass, as events follow each other, until one changes nothing; its plan says when to wake."""
        for _ in range(40):
            desired = self.look()
            if not self._changed:
                return desired
        raise AssertionError(f"without time passing there is always something to do: {desired}")

    def wait_until(self, then: datetime) -> None:
        """Time passes and nothing else happens: nobody looks but at the times for which a plan asked to be woken."""
        desired = self.rest()
        while desired.requeue_at and desired.requeue_at <= then:
            assert desired.requeue_at > self.now, "who is to be woken at once, or before, has not done what was due"
            self.now = desired.requeue_at
            desired = self.rest()
        self.now = then

    def wait(self, seconds: float) -> None:
        self.wait_until(self.now + seconds * SECONDS)

    def settle(self, most: int = 60) -> int:
        """Pass after pass until nothing changes any more; the answer is how many it took."""
        quiet = 0
        for number in range(most):
            quiet = 0 if self.step() else quiet + 1
            if quiet == QUIET:
                return number
        raise AssertionError(f"after {most} passes there is still something to do: {self.plan()}")

    def plan(self) -> JobPlan:
        return plan(self.job, self.children(), self.now, replace(self._around, status_written_at=self._written_at))

    def _allowed(self, desired: JobPlan) -> list[Write]:
        """Nothing, where somebody else has a name that the plan claims."""
        for kind, key in desired.required_names:
            self.refusals.pop((kind.plural, key), None)
            if (kind.plural, key.name) in self.taken:
                self._refuse(kind.plural, key)
                return []
        return writes_of(desired)

    def _refuse(self, kind: str, key: Key) -> None:
        self._changed = True
        self.refusals[kind, key] = Refusal(kind, key, "NameConflict", "taken", self.now + 2 * SECONDS)

    def _write_status(self, desired: PaddleJobStatus) -> None:
        if desired == self.job.status:
            return
        stored = read_status(msgspec.json.encode(desired))
        assert stored == desired, "what is written must be read as it was"
        version = str(self.job.version + 1)
        self.job = with_status(self.job, stored)
        self.job = msgspec.structs.replace(
            self.job, metadata=msgspec.structs.replace(self.job.metadata, resource_version=version)
        )
        self._written_at = self.now
        self._changed = True
        if stored.phase != self.phases[-1]:
            self.phases.append(stored.phase)

    def _carry_out(self, write: Write) -> None:
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
        place, name = (write.kind.plural, write.key), write.key.name
        assert write.key.namespace == self.job.key.namespace
        held = self.refusals.get(place)
        assert held is None or held.retry_at <= self.now, f"{name} was refused and is sent again too early"
        if (write.kind.plural, name) in self.taken:
            self._refuse(*place)
            return
        self.refusals.pop(place, None)
        metadata = {**write.manifest["metadata"], "uid": f"made-{next(self._numbers)}", "resourceVersion": "1"}
        if write.kind is POD_GROUPS:
            assert self.group is None, "the PodGroup exists"
            self.group = group_view(msgspec.convert({**write.manifest, "metadata": metadata}, PodGroup))
            return
        kind: dict[str, Any] = {PODS.plural: self.pods, CONFIG_MAPS.plural: self.config_maps}
        there = kind.get(write.kind.plural, self.services)
        assert name not in there, f"{write.kind} {name} exists"
        stored = {**write.manifest, "metadata": metadata}
        if write.kind is PODS:
            self.pods[name] = pod_view(msgspec.convert({**stored, "status": {"phase": "Pending"}}, Pod))
        else:
            there[name] = child_view(msgspec.convert(stored, Object))

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
            assert pod.nudged_for != annotations[ENDPOINTS_ANNOTATION], "a pod is woken once for a contract"
            pod = msgspec.structs.replace(pod, nudged_for=annotations[ENDPOINTS_ANNOTATION])
        if "spec" in write.change:
            assert self.job.finished
            pod = msgspec.structs.replace(pod, phase="Failed", ready=False, deadline_seconds=1, exit_code=143)
        self.pods[pod.name] = pod

    def _patch_group(self, write: Patch) -> None:
        group = self.group
        assert group
        assert (group.uid, group.owner_uid) == (write.uid, self.job.uid), "a group of the user's is not touched"
        spec = write.change["spec"]
        least = {**group.min_resources, **spec.get("minResources", {})}
        self.group = msgspec.structs.replace(
            group,
            min_member=spec.get("minMember", group.min_member),
            min_resources={name: value for name, value in least.items() if value is not None},
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
        there = kinds[write.kind.plural]
        found = there[write.key.name]
        assert found.uid == write.uid
        assert found.owner_uid == self.job.uid
        if write.force:
            assert found.terminating, f"{found.name} was never asked to go"
            del there[found.name]
            return
        assert not found.terminating, f"{found.name} is leaving already"
        if write.kind is POD_GROUPS:
            self.group = None
        else:
            there[found.name] = self._leaving(found)

    def _delete_job(self, write: Delete) -> None:
        assert write.uid == self.job.uid
        assert self.deleted_at is None, "the job is deleted once"
        self.deleted_at = self.now
        meta = msgspec.structs.replace(self.job.metadata, deletion_timestamp=self.now)
        self.job = msgspec.structs.replace(self.job, metadata=meta)

    def _leaving(self, child: Any) -> Any:
        leaves = {"terminates_by": self.now + GRACE} if isinstance(child, PodView) else {}
        return msgspec.structs.replace(child, terminating=True, **leaves)

    def _delete_all(self, write: DeleteAll) -> None:
        kinds: dict[str, dict[str, Any]] = {PODS.plural: self.pods, SERVICES.plural: self.services}
        assert write.namespace == self.job.key.namespace
        assert write.labels == f"{JOB_UID_LABEL}={self.job.uid}"
        there = kinds[write.kind.plural]
        for child in there.values():
            assert child.created_by_us or child.terminating, "what has not our label would stay"
            there[child.name] = child if child.terminating else self._leaving(child)

    def _collect_garbage(self) -> None:
        for there in (self.pods, self.config_maps, self.services):
            assert isinstance(there, dict)
            stays = {name for name, each in self.pods.items() if each.node and each.node in self.silent}
            going = {name for name, each in there.items() if each.terminating}
            for name in going - stays if there is self.pods else going:
                del there[name]
                self._changed = True

    # The user

    def asks(self, **fields: Any) -> None:
        """The spec changes, and with it the job's generation."""
        assert self.job.spec
        meta = msgspec.structs.replace(self.job.metadata, generation=self.job.metadata.generation + 1)
        spec = msgspec.structs.replace(self.job.spec, **fields)
        self.job = msgspec.structs.replace(self.job, metadata=meta, spec=spec)

    def deletes_pod(self, name: str) -> None:
        self.pods[name] = self._leaving(self.pods[name])

    # Volcano

    def admits(self, phase: str = "Inqueue") -> None:
        assert self.group
        self.group = msgspec.structs.replace(self.group, phase=phase)

    # The kubelets

    def all_run(self) -> None:
        """Everybody does his work until all pods run; no time passes."""
        self.rest()
        for name in list(self.pods):
            self.gives_address(name)
        self.rest()
        for name in list(self.pods):
            self.starts(name)
        self.rest()

    def gives_address(self, name: str) -> None:
        """Its container then waits for the barrier; an elastic one runs."""
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

    def starts(self, name: str) -> None:
        """If it has what its container needs."""
        pod = self.pods[name]
        assert self.job.spec
        if pod.phase != "Pending" or not pod.address:
            return
        if not self.job.spec.is_elastic:
            if self.barrier is None:
                return
            self.started_with[pod.uid] = self.barrier.endpoints_digest
        self.pods[name] = msgspec.structs.replace(pod, phase="Running", ready=True, started=True, waiting="")

    def exits(self, name: str, code: int, **told: Any) -> None:
        pod = self.pods[name]
        if pod.phase != "Running" or pod.terminating:
            return
        ended = {"phase": "Failed" if code else "Succeeded", "ready": False, "exit_code": code, "finished_at": self.now}
        self.pods[name] = msgspec.structs.replace(pod, **ended | told)

    def starts_again(self, name: str, times: int = 1) -> None:
        """Kubelet itself, where restartPolicy lets it."""
        pod = self.pods[name]
        if pod.phase == "Running":
            self.pods[name] = msgspec.structs.replace(pod, restarts=pod.restarts + times)

    def moves(self, name: str) -> None:
        """Its sandbox is made anew, and has another address."""
        pod = self.pods[name]
        if pod.phase == "Running":
            number = next(self._numbers)
            self.pods[name] = msgspec.structs.replace(pod, address=f"10.8.{number // 250 % 250}.{number % 250 + 1}")


def start_scenario(job: Job, context: PlanContext | None = None) -> Model:
    """Of a job that was just made, and whose pods all run."""
    model = Model(job, Children(), T0, context)
    model.all_run()
    return model
