"""What kustomize makes of the folders of config/, also of those that no file of deploy/ is made of."""

import os
from pathlib import Path

import pytest
import yaml

from testbed.assets import Binaries
from tests.install.installed import CRD, MANAGER, OPERATOR, ROOT, Manifest, Place, objects
from tools.manifests import kustomize

SERVICE: Place = ("Service", MANAGER[1], f"{MANAGER[2]}-metrics")
MONITOR: Place = ("ServiceMonitor", MANAGER[1], MANAGER[2])
OF_EVERY_KUBEBUILDER_OPERATOR = {"control-plane": "controller-manager"}


@pytest.fixture
def with_prometheus(control_plane_binaries: Binaries, tmp_path: Path) -> dict[Place, Manifest]:
    """As the component's own comment says to add it."""
    config = os.path.relpath(ROOT / "config", tmp_path.resolve())
    asked = {"resources": [f"{config}/one-namespace"], "components": [f"{config}/prometheus"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(asked))
    return objects(kustomize(str(tmp_path)))


def test_config_default_is_crd_and_operator(control_plane_binaries: Binaries) -> None:
    assert objects(kustomize("default")) == objects(CRD.read_text()) | objects(OPERATOR.read_text())


def test_prometheus_overlay_adds_a_service_monitor(with_prometheus: dict[Place, Manifest]) -> None:
    assert with_prometheus.keys() == objects(OPERATOR.read_text()).keys() | {SERVICE, MONITOR}
    service, monitor = with_prometheus[SERVICE], with_prometheus[MONITOR]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_selectors_match_only_the_operators_pods(with_prometheus: dict[Place, Manifest]) -> None:
    """Beside it in its namespace may be others: a NetworkPolicy on their pods would cut their webhooks off."""
    labels = with_prometheus[MANAGER]["spec"]["template"]["metadata"]["labels"]
    specs = {kind: each["spec"] for (kind, _, _), each in with_prometheus.items() if "spec" in each}
    selectors = (
        specs["NetworkPolicy"]["podSelector"]["matchLabels"],
        specs["PodDisruptionBudget"]["selector"]["matchLabels"],
        specs["Service"]["selector"],
    )
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not selector.items() <= OF_EVERY_KUBEBUILDER_OPERATOR.items()
    monitored = specs["ServiceMonitor"]["selector"]["matchLabels"]
    assert not monitored.items() <= OF_EVERY_KUBEBUILDER_OPERATOR.items()
