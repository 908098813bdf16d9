"""Alerts and dashboard ask for metrics that there are, with labels that they have."""

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
from tests.install.installed import ROOT
from tests.support.jobs import make_job, make_pod

RULES = ROOT / "deploy/monitoring/rules.yaml"
DASHBOARD = ROOT / "deploy/monitoring/dashboard.json"
WORDS = frozenset({"sum", "max", "by", "and", "on", "rate", "increase", "absent", "histogram_quantile", "le"})
SHARED = ("rest_client_", "process_", "workqueue_", "controller_runtime_", "leader_election_")  # with other operators
SERIES = re.compile(r"([a-z_][a-z0-9_]*)\s*(?:\{([^}]*)\})?")


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def without_grouping(expression: str) -> str:
    return re.sub(r'"[^"]*"', '""', re.sub(r"(by|on) \([^)]*\)", "", expression))


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The labels of each series that is served, once everything has happened."""
    observe_phase("Running", 1.0)
    metrics.QueueMetrics("paddlejob", lambda: 0.0, lambda: 0.0)
    metrics.ControllerMetrics("paddlejob", 1)
    metrics.leader_gauge("b2a304f2.paddlepaddle.org").set(1)
    metrics.count_request(200, "GET", "server")
    every: list[Metric] = [*REGISTRY.collect()]
    found = {sample.name: set(sample.labels) for metric in every for sample in metric.samples}
    waiting = {"paddlejobs_waiting": {"reason"}, "paddlejob_pods_waiting": {"reason"}}
    return found | waiting  # counted from jobs and pods, of which there are none here


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_queried_series_exists(expression: str, known: dict[str, set[str]]) -> None:
    named = [found for found in SERIES.findall(without_grouping(expression)) if found[0] not in WORDS]
    series = [(name, labels) for name, labels in named if not re.fullmatch(r"[smhd]", name)]
    assert series
    for name, labels in series:
        assert name in known, f"nobody serves {name}"
        assert set(re.findall(r"(\w+)\s*[=!]~?", labels)) <= known[name]
    grouped = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(", ")}
    assert grouped <= set().union(*(known[name] for name, _ in series))


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_shared_series_are_filtered_by_job(expression: str) -> None:
    shared = [found for found in SERIES.findall(without_grouping(expression)) if found[0].startswith(SHARED)]
    chosen = re.findall(r'(?:controller|name)=~?"(?:paddlejob|b2a304f2)', expression)
    assert not shared or chosen or "and on (instance) paddlejobs" in expression


class Shelf:
    """What can be looked through and be forgotten, as a cache can."""

    def __init__(self, *things: Any) -> None:
        self._things = things

    def __iter__(self) -> Iterator[Any]:
        return iter(self._things)


def test_waiting_pods_are_counted_by_kubelet_reason() -> None:
    job = make_job(workers=4)
    told = [{"waiting": "ImagePullBackOff"}, {"waiting": "MadeUp-4711"}, {"unschedulable": "no room"}, {}]
    jobs, pods = Shelf(job), Shelf(*(make_pod(job, "worker", index, **each) for index, each in enumerate(told)))
    collector = JobsCollector()
    collector.register(jobs, pods)
    (counted,) = (family for family in collector.collect() if family.name == "paddlejob_pods_waiting")
    assert {each.labels["reason"]: each.value for each in counted.samples} == {
        "ImagePullBackOff": 1,
        "Other": 1,
        "Unschedulable": 1,
    }
