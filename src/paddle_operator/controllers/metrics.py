"""Prometheus metrics of PaddleJobs; kube/metrics.py has those of the runtime. No label has more than a few values."""

from collections import Counter as ValueCounter
from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakSet

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from paddle_operator.api.paddlejob import Phase
from paddle_operator.api.reasons import Reason, RestartCause, WaitingReason
from paddle_operator.kube.conditions import find_condition
from paddle_operator.kube.metrics import REGISTRY
from paddle_operator.plan.children import PodView
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.status import RUNNING

_DURATION_BUCKETS_SECONDS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
_phase_duration = Histogram(
    "paddlejob_phase_duration_seconds",
    "How long jobs were in a phase.",
    ["phase"],
    buckets=_DURATION_BUCKETS_SECONDS,
    registry=REGISTRY,
)
_restarts = Counter("paddlejob_restarts", "Restarts of pods, by cause.", ["cause"], registry=REGISTRY)
_finished = Counter("paddlejob_finished", "Finished jobs, by phase.", ["phase"], registry=REGISTRY)
# Every series exists from the start: `increase()` misses a counter's first value where the series begins with it.
for _cause in RestartCause:
    _restarts.labels(_cause)
for _phase in (Phase.COMPLETED, Phase.FAILED):
    _finished.labels(_phase)

# Kubelet's reasons; an unknown one counts as Other, so that no image or plug-in can add labels.
_KNOWN_WAITING_REASONS = frozenset(WaitingReason)


def count_restart(cause: str) -> None:
    _restarts.labels(cause).inc()


def observe_phase(phase: str, seconds: float) -> None:
    """Observe the duration of a phase that a job has left."""
    _phase_duration.labels(phase).observe(seconds)


def count_finished(phase: str) -> None:
    _finished.labels(phase).inc()


class JobsCollector(Collector):
    """Counts the cached jobs and pods at each scrape."""

    def __init__(self) -> None:
        self._jobs: WeakSet[Iterable[Job]] = WeakSet()  # a cache that is dropped is no longer counted
        self._pods: WeakSet[Iterable[PodView]] = WeakSet()

    def register(self, jobs: Iterable[Job], pods: Iterable[PodView]) -> None:
        self._jobs.add(jobs)
        self._pods.add(pods)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        phases: ValueCounter[str] = ValueCounter()
        waiting: ValueCounter[str] = ValueCounter()
        for job in (job for jobs in self._jobs for job in jobs):
            phases[job.status.phase or Phase.PENDING] += 1
            running = find_condition(job.status.conditions, RUNNING)
            if running and running.status == "False" and not job.finished:
                waiting[running.reason] += 1
        yield _gauge("paddlejobs", "Jobs by phase.", "phase", {str(phase): phases[phase] for phase in Phase})
        yield _gauge("paddlejobs_waiting", "Jobs that are not running, by reason of the condition.", "reason", waiting)
        pods = ValueCounter(reason for pods in self._pods for pod in pods if (reason := _waiting_reason(pod)))
        yield _gauge("paddlejob_pods_waiting", "Pods that are not running, by reason.", "reason", pods)


def _waiting_reason(pod: PodView) -> str:
    if pod.waiting:
        return pod.waiting if pod.waiting in _KNOWN_WAITING_REASONS else "Other"
    return Reason.UNSCHEDULABLE if pod.unschedulable else ""


def _gauge(name: str, documentation: str, label: str, counts: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


JOBS = JobsCollector()
REGISTRY.register(JOBS)
