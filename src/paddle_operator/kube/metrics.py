"""The runtime's figures under controller-runtime's names, so that the dashboards people already have work.

No label has an unbounded set of values, and children are bound once: `labels()` costs three times an increment.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # whoever asks does so without a loop
        return 0


Gauge("asyncio_tasks", "Tasks of the process: a number that grows is a leak.", registry=REGISTRY).set_function(_tasks)

_QUEUE_BUCKETS = tuple(10.0**power for power in range(-8, 4))
_RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class FastCounter(Collector):
    """A counter for what happens a thousand times a second: prometheus_client's own takes a lock, and 4 µs each time.
    All is counted in the loop's thread, and added up only when somebody asks.
    """

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
    "rest_client_requests", "HTTP requests by answer, method and server.", ["code", "method", "host"]
)
_relists = Counter("informer_relists", "Full lists of a kind.", ["resource"], registry=REGISTRY)
_unreadable = Counter("informer_unreadable", "Objects that did not fit their type.", ["resource"], registry=REGISTRY)
_changes = FastCounter("informer_changes", "Changes that reached a cache.", ["resource"])
_objects = Gauge("informer_objects", "Objects in the caches.", ["resource"], registry=REGISTRY)
_events_dropped = Counter("events_dropped", "Events lost because too many waited.", registry=REGISTRY)
_leading = Gauge("leader_election_master_status", "1 while this process holds the lease.", ["name"], registry=REGISTRY)

_queue = ["name", "controller"]
_depth = Gauge("workqueue_depth", "Keys that wait.", _queue, registry=REGISTRY)
_adds = Counter("workqueue_adds", "Keys added.", _queue, registry=REGISTRY)
_retries = Counter("workqueue_retries", "Keys added again after a failure.", _queue, registry=REGISTRY)
_unfinished = Gauge("workqueue_unfinished_work_seconds", "Age of all keys in work, summed.", _queue, registry=REGISTRY)
_longest = Gauge("workqueue_longest_running_processor_seconds", "Age of the oldest.", _queue, registry=REGISTRY)
_waited = Histogram(
    "workqueue_queue_duration_seconds", "Wait in the queue.", _queue, buckets=_QUEUE_BUCKETS, registry=REGISTRY
)
_worked = Histogram(
    "workqueue_work_duration_seconds", "Time in work.", _queue, buckets=_QUEUE_BUCKETS, registry=REGISTRY
)

_reconciles = Counter("controller_runtime_reconcile", "Passes by result.", ["controller", "result"], registry=REGISTRY)
_reconcile_errors = Counter(
    "controller_runtime_reconcile_errors", "Passes that failed.", ["controller"], registry=REGISTRY
)
_reconcile_time = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "How long a pass took.",
    ["controller"],
    buckets=_RECONCILE_BUCKETS,
    registry=REGISTRY,
)
_workers = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Workers of a controller.", ["controller"], registry=REGISTRY
)
_active = Gauge("controller_runtime_active_workers", "Workers at work.", ["controller"], registry=REGISTRY)


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
        _changes.counts[self._resource] += 0  # it is there before the first
        self._objects = _objects.labels(resource)
        self._held = 0

    def changed(self) -> None:
        _changes.counts[self._resource] += 1

    def holds(self, count: int) -> None:
        """So many objects are in this cache; there may be one of the same kind for each namespace, and they add up."""
        self._objects.inc(count - self._held)
        self._held = count


class ControllerMetrics:
    def __init__(self, name: str, workers: int) -> None:
        self.success = _reconciles.labels(name, "success")
        self.requeue_after = _reconciles.labels(name, "requeue_after")
        self.error = _reconciles.labels(name, "error")
        self.errors = _reconcile_errors.labels(name)
        self.time = _reconcile_time.labels(name)
        self.active = _active.labels(name)
        _workers.labels(name).set(workers)


def leading(name: str) -> Gauge:
    return _leading.labels(name)
