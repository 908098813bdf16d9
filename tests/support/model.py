"""A model of the cluster that plans are carried out on: what is created appears, what is deleted leaves and is gone.

It plays the API server, the garbage collector and, when asked, the kubelets. It asserts what must hold of every write:
nothing is created that exists, nothing is touched that is not the job's or is leaving already.
"""

import itertools
from datetime import datetime
from typing import Any

import msgspec

from paddle_operator.api.paddlejob import PaddleJobStatus, read_status
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Object, Pod
from paddle_operator.plan.job import Surroundings, plan
from paddle_operator.plan.kinds import PADDLE_JOBS
from paddle_operator.plan.names import CONTRACT, JOB_UID_LABEL
from paddle_operator.plan.status import HELD_BACK
from paddle_operator.plan.views import Children, ChildView, Job, PodView, Refusal, child_view, pod_view
from paddle_operator.plan.writes import Create, Delete, DeleteAll, Patch, Plan, Write
from tests.support.jobs import SECONDS, told_so, writes_of

QUIET = 3  # passes in a row that change nothing


class Model:
    def __init__(self, job: Job, children: Children, now: datetime, around: Surroundings) -> None:
        self.job = job
        self.now = now
        self.pods: dict[str, PodView] = {pod.name: pod for pod in children.pods}
        self.config_maps: dict[str, ChildView] = {each.name: each for each in children.config_maps}
        self.services: dict[str, ChildView] = {each.name: each for each in children.services}
        self.refusals: dict[tuple[str, Key], Refusal] = {(each.kind, each.key): each for each in children.refusals}
        self.taken: set[tuple[str, str]] = set()  # kinds and names that somebody else's objects have
        self.started_with: dict[str, str] = {}  # the contract that a pod's container has read, by uid
        self.phases = [job.status.phase]
        self._etcd, self._free_port = around.etcd, around.free_port
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
        )

    # The operator

    def step(self) -> bool:
        """One pass, and what follows of it by itself; says whether anything changed."""
        self._changed = False
        before = self.now
        around = Surroundings(self._etcd, self._free_port, self._written_at)
        desired = plan(self.job, self.children(), self.now, around)
        self._write_status(desired.status)
        for write in self._allowed(desired):
            self._carry_out(write)
        self._collect_garbage()
        self.now = max(desired.wake_at or before, before + SECONDS)
        return self._changed or desired.wake_at is not None

    def settle(self, most: int = 60) -> int:
        """Pass after pass until nothing changes any more; the answer is how many it took."""
        quiet = 0
        for number in range(most):
            quiet = 0 if self.step() else quiet + 1
            if quiet == QUIET:
                return number
        raise AssertionError(f"after {most} passes there is still something to do: {self.plan()}")

    def plan(self) -> Plan:
        return plan(self.job, self.children(), self.now, Surroundings(self._etcd, self._free_port, self._written_at))

    def _allowed(self, desired: Plan) -> list[Write]:
        """Nothing, where somebody else has a name that the plan claims."""
        for kind, key in desired.claims:
            self.refusals.pop((kind.plural, key), None)
            if (kind.plural, key.name) in self.taken:
                self._refuse(kind.plural, key)
                return []
        return writes_of(desired)

    def _refuse(self, kind: str, key: Key) -> None:
        self._changed = True
        self.refusals[kind, key] = Refusal(kind, key, "NameTaken", "taken", self.now + 2 * SECONDS)

    def _write_status(self, desired: PaddleJobStatus) -> None:
        if desired == self.job.status:
            return
        stored = read_status(msgspec.json.encode(desired))
        assert stored == desired, "what is written must be read as it was"
        version = str(self.job.version + 1)
        self.job = told_so(self.job, stored)
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
        pod = self.pods[write.key.name]
        assert pod.uid == write.uid
        assert not pod.terminating
        annotations = write.change.get("metadata", {}).get("annotations", {})
        if CONTRACT in annotations:
            assert pod.waiting == HELD_BACK
            assert pod.woken_for != annotations[CONTRACT], "a pod is woken once for a contract"
            pod = msgspec.structs.replace(pod, woken_for=annotations[CONTRACT])
        if "spec" in write.change:
            assert self.job.finished
            pod = msgspec.structs.replace(pod, phase="Failed", ready=False, deadline_seconds=1, exit_code=143)
        self.pods[pod.name] = pod

    def _delete(self, write: Delete) -> None:
        kinds: dict[str, dict[str, Any]] = {
            PODS.plural: self.pods,
            CONFIG_MAPS.plural: self.config_maps,
            SERVICES.plural: self.services,
        }
        there = kinds[write.kind.plural]
        found = there[write.key.name]
        assert found.uid == write.uid
        assert found.owner_uid == self.job.uid
        assert not found.terminating, f"{found.name} is leaving already"
        there[found.name] = msgspec.structs.replace(found, terminating=True)

    def _delete_all(self, write: DeleteAll) -> None:
        kinds: dict[str, dict[str, Any]] = {PODS.plural: self.pods, SERVICES.plural: self.services}
        assert write.namespace == self.job.key.namespace
        assert write.labels == f"{JOB_UID_LABEL}={self.job.uid}"
        there = kinds[write.kind.plural]
        for child in there.values():
            assert child.ours or child.terminating, "what has not our label would stay"
            there[child.name] = msgspec.structs.replace(child, terminating=True)

    def _collect_garbage(self) -> None:
        for there in (self.pods, self.config_maps, self.services):
            assert isinstance(there, dict)
            for name in [name for name, each in there.items() if each.terminating]:
                del there[name]
                self._changed = True

    # The kubelets

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
            waiting="" if self.job.spec.is_elastic else HELD_BACK,
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
            self.started_with[pod.uid] = self.barrier.contract
        self.pods[name] = msgspec.structs.replace(pod, phase="Running", ready=True, started=True, waiting="")

    def exits(self, name: str, code: int) -> None:
        pod = self.pods[name]
        if pod.phase != "Running" or pod.terminating:
            return
        phase = "Failed" if code else "Succeeded"
        self.pods[name] = msgspec.structs.replace(pod, phase=phase, ready=False, exit_code=code, finished_at=self.now)

    def moves(self, name: str) -> None:
        """Its sandbox is made anew, and has another address."""
        pod = self.pods[name]
        if pod.phase == "Running":
            number = next(self._numbers)
            self.pods[name] = msgspec.structs.replace(pod, address=f"10.8.{number // 250 % 250}.{number % 250 + 1}")
