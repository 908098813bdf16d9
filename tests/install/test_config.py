"""What kustomize builds from the directories of config/, including those that no file of deploy/ comes from."""

import os
from pathlib import Path

import pytest
import yaml

from testbed.assets import Binaries
from tests.install.installation import CRD, MANAGER, OPERATOR, ROOT, Manifest, ObjectRef, parse_objects
from tools.manifests import kustomize

SERVICE: ObjectRef = ("Service", MANAGER[1], f"{MANAGER[2]}-metrics")
MONITOR: ObjectRef = ("ServiceMonitor", MANAGER[1], MANAGER[2])
KUBEBUILDER_LABELS = {"control-plane": "controller-manager"}


@pytest.fixture
def with_prometheus(control_plane_binaries: Binaries, tmp_path: Path) -> dict[ObjectRef, Manifest]:
    """Build one-namespace with the component added as its comment says."""
    config = os.path.relpath(ROOT / "config", tmp_path.resolve())
    kustomization = {"resources": [f"{config}/one-namespace"], "components": [f"{config}/prometheus"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return parse_objects(kustomize(str(tmp_path)))


def test_config_default_is_crd_and_operator(control_plane_binaries: Binaries) -> None:
    assert parse_objects(kustomize("default")) == parse_objects(CRD.read_text()) | parse_objects(OPERATOR.read_text())


def test_prometheus_overlay_adds_a_service_monitor(with_prometheus: dict[ObjectRef, Manifest]) -> None:
    assert with_prometheus.keys() == parse_objects(OPERATOR.read_text()).keys() | {SERVICE, MONITOR}
    service, monitor = with_prometheus[SERVICE], with_prometheus[MONITOR]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_selectors_match_only_the_operators_pods(with_prometheus: dict[ObjectRef, Manifest]) -> None:
    """Other operators may run in the same namespace: a NetworkPolicy on their pods would block their webhooks."""
    labels = with_prometheus[MANAGER]["spec"]["template"]["metadata"]["labels"]
    specs = {kind: each["spec"] for (kind, _, _), each in with_prometheus.items() if "spec" in each}
    selectors = (
        specs["NetworkPolicy"]["podSelector"]["matchLabels"],
        specs["PodDisruptionBudget"]["selector"]["matchLabels"],
        specs["Service"]["selector"],
    )
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not selector.items() <= KUBEBUILDER_LABELS.items()
    monitored = specs["ServiceMonitor"]["selector"]["matchLabels"]
    assert not monitored.items() <= KUBEBUILDER_LABELS.items()
