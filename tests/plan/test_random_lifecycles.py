"""Random lives: anything happens, at any time, and the operator may die at any write. What then must hold of each pass,
and of the end.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from paddle_operator.kube.writes import Create, Delete, Write
from paddle_operator.plan.children import Children
from paddle_operator.plan.failure_policy import MAX_BACKOFF
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, JobPlan
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.paddlejob import PlanContext
from tests.plan.random_clusters import EDGES, jobs, quick
from tests.support.jobs import SECONDS, T0, with_replicas, writes_of
from tests.support.model import Model

CONTEXT = PlanContext(etcd="10.0.0.9:2379", free_host_port=35020)


class Watched(Model):
    """A life in which each pass is held to what must always be so, and in which the operator can be killed."""

    def __init__(self, job: Job, scheduling: str = "") -> None:
        super().__init__(job, Children(), T0, replace(CONTEXT, scheduling=scheduling))
        self.failures = 0  # that could count
        self.spared: int | None = None  # how many writes the operator lives to send in its next pass
        self.of_before: set[str] = set()  # UIDs of pods from before a suspension
        self.active = 0.0  # seconds, and since when more come to it
        self.since: datetime | None = None
        self.suspensions = 0

    def _allowed_writes(self, desired: JobPlan) -> list[Write]:
        writes = super()._allowed_writes(desired)
        spared, self.spared = self.spared, None
        if spared is not None and spared < len(writes):
            self._changed = True  # who comes next looks again
            return writes[:spared]
        return writes

    def reconcile(self) -> JobPlan:
        before, there = self.job, self.children()
        desired = super().reconcile()
        self._check_count(before, there, desired)
        self._check_rest(before, there, desired)
        self._check_deadline(before, desired)
        self._check_deletion(before, desired)
        return desired

    def _check_count(self, before: Job, there: Children, desired: JobPlan) -> None:
        old, new = before.status, desired.status
        more = new.restarts - old.restarts
        by_kubelet = sum(pod.restarts for pod in there.pods)
        replaced = len({*new.replacing} - {*old.replacing})
        assert more >= 0, "what is used up stays used up"
        if new.attempt > old.attempt:
            assert new.attempt == old.attempt + 1
            assert more <= 1 + by_kubelet, "an attempt costs one try"
        else:
            assert more <= (replaced + by_kubelet if replaced else 0), "and a pod that is replaced alone, one"
        limit = before.spec.backoff_limit if before.spec else None
        assert limit is not None or new.restarts == 0
        assert limit is None or new.restarts <= limit
        assert new.restarts <= self.failures
        assert new.next_attempt_time is None or new.next_attempt_time <= self.now + MAX_BACKOFF

    def _check_rest(self, before: Job, there: Children, desired: JobPlan) -> None:
        spec = before.spec
        assert spec
        if spec.suspend or before.finished:
            assert not [each for each in writes_of(desired) if isinstance(each, Create)]
        if desired.status.phase == "Suspended" and before.status.phase != "Suspended":
            self.of_before |= {pod.uid for pod in there.pods}
            self.suspensions += 1
        if not spec.suspend and not before.finished:
            seated = ObservedJob(self.job, spec, self.children()).pods()
            assert not self.of_before & {pod.uid for pod in seated}, "a pod of before is taken for one of after"

    def _check_deadline(self, before: Job, desired: JobPlan) -> None:
        """By a count of our own: a second is lost at most each time that times are written down in whole seconds."""
        spec, status = before.spec, self.status
        assert spec
        blur = 1 + self.suspensions
        limit = spec.active_deadline_seconds
        active = self.active + ((self.now - self.since).total_seconds() if self.since else 0)
        failed_so = [each.reason for each in status.conditions if each.type == "Failed"] == ["DeadlineExceeded"]
        if failed_so and not before.finished:
            assert limit
            assert active >= limit - blur
        if limit and active >= limit + blur and not spec.suspend and not self._just_resumed(before):
            assert self.job.finished
        if limit and not self.job.finished and not spec.suspend and self.since and desired.status == before.status:
            assert desired.requeue_at
            assert (desired.requeue_at - self.now).total_seconds() <= max(0, limit - active) + blur
        if self.since is None and status.conditions and status.phase != "Suspended":
            self.since = self.now
        elif self.since is not None and status.phase == "Suspended":
            self.active, self.since = active, None

    @staticmethod
    def _just_resumed(before: Job) -> bool:
        return before.status.phase == "Suspended"

    def _check_deletion(self, before: Job, desired: JobPlan) -> None:
        if not [each for each in writes_of(desired) if isinstance(each, Delete) and each.kind is PADDLE_JOBS]:
            return
        assert before.finished
        assert before.spec
        assert before.status.completion_time
        assert before.spec.ttl_seconds_after_finished is not None
        assert self.now >= before.status.completion_time + before.spec.ttl_seconds_after_finished * SECONDS

    def exit_pod(self, name: str, code: int, **told: Any) -> None:
        self.failures += code != 0
        super().exit_pod(name, code, **told)

    def restart_container(self, name: str, times: int = 1) -> None:
        self.failures += times
        super().restart_container(name, times)


def acts(model: Watched, action: str, choice: int) -> None:
    """One thing that happens in the cluster; `choice` says to whom."""
    names = sorted(model.pods)
    if action in TO_THE_JOB:
        TO_THE_JOB[action](model, choice)
    elif names:
        TO_A_POD[action](model, names[choice % len(names)], choice)


def volcano_decides(model: Watched, choice: int) -> None:
    if model.group:
        model.admit_group(("Pending", "Inqueue", "Running", "Unknown")[choice % 4])


def drops_group(model: Watched, choice: int) -> None:
    model.group = None


def scales(model: Watched, choice: int) -> None:
    assert model.job.spec
    if model.job.spec.worker and not model.job.spec.success_policy:
        model.job = with_replicas(model.job, worker=choice % 4 + 1)


def passes(model: Watched, choice: int) -> None:
    model.reconcile_and_advance()


def all_get_addresses(model: Watched, choice: int) -> None:
    for name in list(model.pods):
        model.assign_address(name)


def all_start(model: Watched, choice: int) -> None:
    for name in list(model.pods):
        model.start_container(name)


def time_passes(model: Watched, choice: int) -> None:
    model.now += choice * SECONDS


def operator_dies(model: Watched, choice: int) -> None:
    model.spared = choice % 3
    model.reconcile_and_advance()


TO_THE_JOB: dict[str, Callable[[Watched, int], object]] = {
    "pass": passes,
    "settle": lambda model, _: model.run_until_idle(),
    "all run": lambda model, _: all_run(model),
    "address": all_get_addresses,
    "start": all_start,
    "drop barrier": lambda model, _: model.config_maps.clear(),
    "drop services": lambda model, _: model.services.clear(),
    "drop group": drops_group,
    "volcano": volcano_decides,
    "scale": scales,
    "suspend": lambda model, _: model.update_spec(suspend=True),
    "resume": lambda model, _: model.update_spec(suspend=False),
    "time": time_passes,
    "kill": operator_dies,
}


def succeeds(model: Watched, name: str, choice: int) -> None:
    if "-ps-" not in name:
        model.exit_pod(name, 0)


def is_preempted(model: Watched, name: str, choice: int) -> None:
    model.exit_pod(name, (143, 137, 134)[choice % 3], disrupted=True, exit_reason="PreemptionByScheduler")


def crashes(model: Watched, name: str, choice: int) -> None:
    if restarts_itself(model.job):
        model.restart_container(name)


TO_A_POD: dict[str, Callable[[Watched, str, int], object]] = {
    "exit": succeeds,
    "fail": lambda model, name, choice: model.exit_pod(name, (1, 134, 250, 139, 2)[choice % 5]),
    "preempt": is_preempted,
    "crash": crashes,
    "vanish": lambda model, name, _: model.pods.pop(name),
    "delete": lambda model, name, _: model.delete_pod(name),
    "move": lambda model, name, _: model.change_address(name),
    "silence": lambda model, name, _: model.unresponsive_nodes.add(model.pods[name].node),
}
FREQUENT = ("pass", "all run", "exit", "vanish")
ACTIONS = st.sampled_from([*FREQUENT, *FREQUENT, "resume", "fail", "kill", "all run", *TO_THE_JOB, *TO_A_POD])


def restarts_itself(job: Job) -> bool:
    assert job.spec
    return any(part.template["spec"]["restartPolicy"] == "OnFailure" for part in job.spec.roles.values())


def agree(model: Watched) -> bool:
    """All ranks of a job that runs have read the same lists, and the lists are true."""
    spec = model.job.spec
    if spec is None or spec.is_elastic or model.status.phase != "Running":
        return True
    read = {model.endpoints_digests[pod.uid] for pod in model.pods.values() if pod.uid in model.endpoints_digests}
    return len(read) <= 1


def all_run(model: Watched) -> None:
    """Volcano lets everybody in, the kubelets do their work, the operator its."""
    model.run_until_idle()
    if model.group:
        model.admit_group()
        model.run_until_idle()
    for name in list(model.pods):
        model.assign_address(name)
    model.run_until_idle()
    for name in list(model.pods):
        model.start_container(name)
    model.run_until_idle()
    assert agree(model)


def lives_on(model: Watched) -> None:
    """Workers succeed, and nothing bad happens any more."""
    assert model.job.spec
    model.update_spec(suspend=False)
    model.unresponsive_nodes.clear()
    for _ in range(4):
        all_run(model)
        for name in list(model.pods):
            if "-ps-" not in name or model.job.spec.worker is None:
                model.exit_pod(name, 0)
    model.run_until_idle()


@settings(quick, max_examples=150)
@given(
    jobs(stored=False),
    st.sampled_from(["", "volcano"]),
    st.lists(st.tuples(ACTIONS, st.integers(0, 50)), min_size=5, max_size=25),
)
def test_random_lifecycle_converges(job: Job, scheduling: str, happenings: list[tuple[str, int]]) -> None:
    model = Watched(job, scheduling)
    for action, choice in happenings:
        acts(model, action, choice)
    lives_on(model)
    note(str(model.phases))
    status = model.status
    assert status.phase in ("Completed", "Failed")
    assert job.spec
    reason = [each.reason for each in status.conditions if each.type == "Failed"]
    bad = {"fail", "preempt", "crash"} & {action for action, _ in happenings}
    assert bad or status.phase == "Completed" or reason[0] in ("DeadlineExceeded", "StartDeadlineExceeded")
    assert reason != ["BackoffLimitExceeded"] or job.spec.backoff_limit is not None
    for step in zip(model.phases, model.phases[1:], strict=False):
        assert step in EDGES
    if job.spec.ttl_seconds_after_finished in (0, 30):
        assert model.deleted_at
        return  # what is left goes with the job
    assert not [pod for pod in model.pods.values() if not pod.finished]  # nobody holds a GPU any more
    assert not (job.spec.cleans(status.phase) and model.pods)
    assert model.group is None
    assert not (status.start_time and status.completion_time) or status.start_time <= status.completion_time
