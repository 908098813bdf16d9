"""What Prometheus hears of jobs, beside what the runtime tells of itself. No label has more than a few values."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from weakref import WeakSet

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from paddle_operator.api.paddlejob import Phase
from paddle_operator.api.reasons import Reason, RestartCause, WaitingReason
from paddle_operator.kube.conditions import find_condition
from paddle_operator.kube.metrics import REGISTRY
from paddle_operator.plan.children import Job, PodView
from paddle_operator.plan.status import RUNNING

_LENGTHS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
_phases = Histogram(
    "paddlejob_phase_duration_seconds", "How long jobs were in a phase.", ["phase"], buckets=_LENGTHS, registry=REGISTRY
)
_restarts = Counter("paddlejob_restarts", "Times that pods were replaced, by cause.", ["cause"], registry=REGISTRY)
_finished = Counter("paddlejob_finished", "Jobs that came to an end, by phase.", ["phase"], registry=REGISTRY)
for _cause in RestartCause:
    _restarts.labels(_cause)  # they are there before the first: from nothing to one nobody sees an increase
for _phase in (Phase.COMPLETED, Phase.FAILED):
    _finished.labels(_phase)

# Kubelet's words; one that we do not know is told as Other, so that no image or plug-in can make up labels.
_WAITING = frozenset(WaitingReason)


def count_restart(cause: str) -> None:
    _restarts.labels(cause).inc()


def count_phase(phase: str, seconds: float) -> None:
    """A job has left this phase after so long."""
    _phases.labels(phase).observe(seconds)


def count_end(phase: str) -> None:
    _finished.labels(phase).inc()


class JobsCollector(Collector):
    """Counts at the moment that somebody asks, so that nobody need keep count."""

    def __init__(self) -> None:
        self._jobs: WeakSet[Iterable[Job]] = WeakSet()  # a cache that is no more counts no more
        self._pods: WeakSet[Iterable[PodView]] = WeakSet()

    def register(self, jobs: Iterable[Job], pods: Iterable[PodView]) -> None:
        self._jobs.add(jobs)
        self._pods.add(pods)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        phases: Tally[str] = Tally()
        waiting: Tally[str] = Tally()
        for job in (job for jobs in self._jobs for job in jobs):
            phases[job.status.phase or Phase.PENDING] += 1
            told = find_condition(job.status.conditions, RUNNING)
            if told and told.status == "False" and not job.finished:
                waiting[told.reason] += 1
        yield _family("paddlejobs", "Jobs by phase.", "phase", {str(phase): phases[phase] for phase in Phase})
        yield _family(
            "paddlejobs_waiting", "Jobs that do not run, by the reason of their condition.", "reason", waiting
        )
        pods = Tally(reason for pods in self._pods for pod in pods if (reason := _waits_for(pod)))
        yield _family("paddlejob_pods_waiting", "Pods that do not run, by the reason.", "reason", pods)


def _waits_for(pod: PodView) -> str:
    if pod.waiting:
        return pod.waiting if pod.waiting in _WAITING else "Other"
    return Reason.UNSCHEDULABLE if pod.unschedulable else ""


def _family(name: str, text: str, label: str, counts: dict[str, int] | Tally[str]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


JOBS = JobsCollector()
REGISTRY.register(JOBS)
