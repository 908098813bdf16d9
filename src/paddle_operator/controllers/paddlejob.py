"""Wires the caches of PaddleJobs and their children to plan/paddlejob.py, for the reconciler of kube/reconciler.py."""

from collections.abc import Collection
from datetime import datetime

from paddle_operator.api.paddlejob import KIND, PaddleJobStatus, Phase
from paddle_operator.controllers import metrics
from paddle_operator.controllers.settings import Settings
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.executor import OwnerState
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Object, Pod, StoredObject
from paddle_operator.kube.reconciler import OwnedObjects, Reconciler, ReconcilerSettings
from paddle_operator.plan.children import Children, ChildView, PodView, child_view, pod_view, terminating_pod_view
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, JobPlan, cached_job_view
from paddle_operator.plan.metadata import POD_NAME_LABEL, ROLE_LABEL
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.pod_group import POD_GROUPS, GroupView, PodGroup, group_view


class PaddleJobs(Reconciler[Job, PaddleJobStatus]):
    """The controller of PaddleJobs."""

    def __init__(
        self, client: Client, recorder: Recorder, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        settings = settings or Settings()
        self._settings = settings
        scope = Scope(settings.namespace)
        named = Scope(settings.namespace, labels=POD_NAME_LABEL)
        with_role = Scope(settings.namespace, labels=ROLE_LABEL)
        self._jobs: Informer[StoredObject, Job] = Informer(
            client, PADDLE_JOBS, scope, project=lambda stored: cached_job_view(stored, self._jobs.store.get(stored.key))
        )
        self._pods: Informer[Pod, PodView] = Informer(client, PODS, with_role, project=self._pod_view)
        self._config_maps: Informer[Object, ChildView] = Informer(client, CONFIG_MAPS, named, project=child_view)
        self._services: Informer[Object, ChildView] = Informer(client, SERVICES, scope, project=child_view)
        self._groups: Informer[PodGroup, GroupView] | None = None
        if settings.scheduling:
            self._groups = Informer(client, POD_GROUPS, scope, project=group_view, optional=True)
        super().__init__(
            client,
            recorder,
            KIND,
            self._jobs,
            (self._pods, self._config_maps, self._services),
            ReconcilerSettings(settings.controller_name(KIND)),
            same_name=(self._groups,) if self._groups else (),
            clock=clock,
        )
        self._phase_since: dict[str, datetime] = {}  # by uid, where the beginning of the phase was seen
        self._ports = settings.host_ports()
        self._ports.register(self._jobs.store)
        self._ports.on_release(self._enqueue_waiting)
        metrics.JOBS.register(self._jobs.store, self._pods.store)

    def _pod_view(self, pod: Pod) -> PodView:
        if pod.metadata.deletion_timestamp is None:
            return pod_view(pod)
        return terminating_pod_view(pod, self._pods.store.get(pod.key), self.clock.now())

    def plan(self, owner: Job, children: OwnedObjects, state: OwnerState) -> JobPlan:
        cached = Children(
            children.of(self._pods),
            children.of(self._config_maps),
            children.of(self._services),
            children.refusals,
            self._groups.store.get(owner.key) if self._groups else None,
        )
        context = PlanContext(
            etcd=self._settings.etcd,
            scheduling=self._settings.scheduling,
            group_crd_missing=self._groups is not None and self._groups.absent,
            free_host_port=self._ports.reserve(owner),
            status_written_at=state.status_written_at,
            status_interval=self.status_interval,
        )
        return plan(owner, cached, self.clock.now(), context)

    def on_change(self, old: Job | None, new: Job | None) -> None:
        changed = new or old
        assert changed
        if new is None:
            self._phase_since.pop(changed.uid, None)
        if new is None or (new.finished and old is not None and not old.finished):
            self._ports.release(changed.uid)

    def observe(self, owner: Job, plan: JobPlan) -> None:
        if plan.restart_cause:
            metrics.count_restart(plan.restart_cause)
        before, after, now = owner.status.phase, plan.status.phase, self.clock.now()
        if before == after:
            return
        if since := self._phase_since.get(owner.uid):
            metrics.observe_phase(before, (now - since).total_seconds())
        if self.is_cached(owner.uid):  # else nothing would drop it
            self._phase_since[owner.uid] = now
        if after in (Phase.COMPLETED, Phase.FAILED):
            metrics.count_finished(after)

    def _enqueue_waiting(self, uids: Collection[str]) -> None:
        """Ports are free again, perhaps those of a job in another namespace."""
        for uid in uids:
            self.enqueue(uid)
