"""Alerts and the dashboard query only metrics and labels that the operator serves."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from paddle_operator.controllers.metrics import JobsCollector, observe_phase
from paddle_operator.kube import metrics
from paddle_operator.kube.metrics import REGISTRY
from tests.install.installation import ROOT
from tests.support.jobs import make_job, make_pod

RULES = ROOT / "deploy/monitoring/rules.yaml"
DASHBOARD = ROOT / "deploy/monitoring/dashboard.json"
PROMQL_KEYWORDS = frozenset({"sum", "max", "by", "and", "on", "rate", "increase", "absent", "histogram_quantile", "le"})
SHARED_PREFIXES = (
    "rest_client_",
    "process_",
    "workqueue_",
    "controller_runtime_",
    "leader_election_",
)  # other operators serve them, too
SERIES = re.compile(r"([a-z_][a-z0-9_]*)\s*(?:\{([^}]*)\})?")


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def without_grouping(expression: str) -> str:
    return re.sub(r'"[^"]*"', '""', re.sub(r"(by|on) \([^)]*\)", "", expression))


@pytest.fixture(scope="module")
def served_labels() -> dict[str, set[str]]:
    """The labels of each series, after every event that creates one."""
    observe_phase("Running", 1.0)
    metrics.QueueMetrics("paddlejob", lambda: 0.0, lambda: 0.0)
    metrics.ControllerMetrics("paddlejob", 1)
    metrics.leader_gauge("b2a304f2.paddlepaddle.org").set(1)
    metrics.count_request(200, "GET", "server")
    collected: list[Metric] = [*REGISTRY.collect()]
    labels = {sample.name: set(sample.labels) for metric in collected for sample in metric.samples}
    waiting = {"paddlejobs_waiting": {"reason"}, "paddlejob_pods_waiting": {"reason"}}
    return labels | waiting  # counted from jobs and pods; there are none here


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_queried_series_exists(expression: str, served_labels: dict[str, set[str]]) -> None:
    identifiers = [match for match in SERIES.findall(without_grouping(expression)) if match[0] not in PROMQL_KEYWORDS]
    series = [(name, labels) for name, labels in identifiers if not re.fullmatch(r"[smhd]", name)]
    assert series
    for name, labels in series:
        assert name in served_labels, f"{name} is not served"
        assert set(re.findall(r"(\w+)\s*[=!]~?", labels)) <= served_labels[name]
    grouped = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(", ")}
    assert grouped <= set().union(*(served_labels[name] for name, _ in series))


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_shared_series_are_filtered_by_job(expression: str) -> None:
    shared = [match for match in SERIES.findall(without_grouping(expression)) if match[0].startswith(SHARED_PREFIXES)]
    job_filters = re.findall(r'(?:controller|name)=~?"(?:paddlejob|b2a304f2)', expression)
    assert not shared or job_filters or "and on (instance) paddlejobs" in expression


class WeakReferenceableList:
    """An iterable that can be referenced weakly, as a cache can; a list cannot."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


def test_waiting_pods_are_counted_by_kubelet_reason() -> None:
    job = make_job(workers=4)
    states = [{"waiting": "ImagePullBackOff"}, {"waiting": "Unknown-4711"}, {"unschedulable": "no room"}, {}]
    jobs, pods = (
        WeakReferenceableList(job),
        WeakReferenceableList(*(make_pod(job, "worker", index, **each) for index, each in enumerate(states))),
    )
    collector = JobsCollector()
    collector.register(jobs, pods)
    (metric,) = (family for family in collector.collect() if family.name == "paddlejob_pods_waiting")
    assert {each.labels["reason"]: each.value for each in metric.samples} == {
        "ImagePullBackOff": 1,
        "Other": 1,
        "Unschedulable": 1,
    }
