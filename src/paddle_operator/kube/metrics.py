"""Prometheus metrics of the runtime, under controller-runtime's names, so that existing dashboards work.

No label has an unbounded set of values. Children are bound once: `labels()` costs three times an increment.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)


def _count_tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # scraped outside the event loop
        return 0


Gauge("asyncio_tasks", "Tasks of the process: a number that grows is a leak.", registry=REGISTRY).set_function(
    _count_tasks
)

_QUEUE_BUCKETS = tuple(10.0**power for power in range(-8, 4))
_RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class FastCounter(Collector):
    """A counter without a lock, for the event loop's thread only: prometheus_client's own takes 4 µs an increment."""

    def __init__(self, name: str, text: str, labels: list[str]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self.counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
        REGISTRY.register(self)

    def describe(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in self.counts.items():
            family.add_metric(labels, count)
        yield family


_requests = FastCounter(
    "rest_client_requests", "HTTP requests by status code, method and server.", ["code", "method", "host"]
)
_relists = Counter("informer_relists", "Full lists of a kind.", ["resource"], registry=REGISTRY)
_unreadable = Counter("informer_unreadable", "Objects that could not be decoded.", ["resource"], registry=REGISTRY)
_changes = FastCounter("informer_changes", "Changes that reached a cache.", ["resource"])
_objects = Gauge("informer_objects", "Objects in the caches.", ["resource"], registry=REGISTRY)
_events_dropped = Counter("events_dropped", "Events dropped because too many were pending.", registry=REGISTRY)
_leading = Gauge("leader_election_master_status", "1 while this process holds the lease.", ["name"], registry=REGISTRY)

_queue = ["name", "controller"]
_depth = Gauge("workqueue_depth", "Keys waiting.", _queue, registry=REGISTRY)
_adds = Counter("workqueue_adds", "Keys added.", _queue, registry=REGISTRY)
_retries = Counter("workqueue_retries", "Keys added again after a failure.", _queue, registry=REGISTRY)
_unfinished = Gauge("workqueue_unfinished_work_seconds", "Age of all keys in work, summed.", _queue, registry=REGISTRY)
_longest = Gauge(
    "workqueue_longest_running_processor_seconds", "Age of the oldest key in work.", _queue, registry=REGISTRY
)
_waited = Histogram(
    "workqueue_queue_duration_seconds", "Wait in the queue.", _queue, buckets=_QUEUE_BUCKETS, registry=REGISTRY
)
_worked = Histogram(
    "workqueue_work_duration_seconds", "Time in work.", _queue, buckets=_QUEUE_BUCKETS, registry=REGISTRY
)

_reconciles = Counter(
    "controller_runtime_reconcile", "Reconciles by result.", ["controller", "result"], registry=REGISTRY
)
_reconcile_errors = Counter(
    "controller_runtime_reconcile_errors", "Reconciles that failed.", ["controller"], registry=REGISTRY
)
_reconcile_time = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "Duration of a reconcile.",
    ["controller"],
    buckets=_RECONCILE_BUCKETS,
    registry=REGISTRY,
)
_workers = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Workers of a controller.", ["controller"], registry=REGISTRY
)
_active = Gauge("controller_runtime_active_workers", "Workers that reconcile now.", ["controller"], registry=REGISTRY)


def count_request(code: int | str, method: str, host: str) -> None:
    _requests.counts[str(code), method, host] += 1


def count_dropped_event() -> None:
    _events_dropped.inc()


class QueueMetrics:
    def __init__(self, name: str, unfinished: Callable[[], float], longest: Callable[[], float]) -> None:
        self.depth = _depth.labels(name, name)
        self.adds = _adds.labels(name, name)
        self.retries = _retries.labels(name, name)
        self.waited = _waited.labels(name, name)
        self.worked = _worked.labels(name, name)
        _unfinished.labels(name, name).set_function(unfinished)
        _longest.labels(name, name).set_function(longest)


class InformerMetrics:
    def __init__(self, resource: str) -> None:
        self.relists = _relists.labels(resource)
        self.unreadable = _unreadable.labels(resource)
        self._resource = (resource,)
        _changes.counts[self._resource] += 0  # so that the metric exists before the first change
        self._objects = _objects.labels(resource)
        self._count = 0

    def count_change(self) -> None:
        _changes.counts[self._resource] += 1

    def set_object_count(self, count: int) -> None:
        """Caches of the same kind, one for each namespace, add up."""
        self._objects.inc(count - self._count)
        self._count = count


class ControllerMetrics:
    def __init__(self, name: str, workers: int) -> None:
        self.success = _reconciles.labels(name, "success")
        self.requeue_after = _reconciles.labels(name, "requeue_after")
        self.error = _reconciles.labels(name, "error")
        self.errors = _reconcile_errors.labels(name)
        self.time = _reconcile_time.labels(name)
        self.active = _active.labels(name)
        _workers.labels(name).set(workers)


def leader_gauge(name: str) -> Gauge:
    return _leading.labels(name)
