"""The runtime's figures under controller-runtime's names, so that the dashboards people already have work.

No label has an unbounded set of values, and children are bound once: `labels()` costs three times an increment.
"""

import asyncio
from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

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

_requests = Counter(
    "rest_client_requests", "HTTP requests by answer, method and server.", ["code", "method", "host"], registry=REGISTRY
)
_relists = Counter("informer_relists", "Full lists of a kind.", ["resource"], registry=REGISTRY)
_unreadable = Counter("informer_unreadable", "Objects that did not fit their type.", ["resource"], registry=REGISTRY)
_changes = Counter("informer_changes", "Changes that reached a cache.", ["resource"], registry=REGISTRY)
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


@cache
def _request(code: int | str, method: str, host: str) -> Counter:
    return _requests.labels(str(code), method, host)


def count_request(code: int | str, method: str, host: str) -> None:
    _request(code, method, host).inc()


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
        self.changes = _changes.labels(resource)
        self._objects = _objects.labels(resource)
        self._held = 0

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
