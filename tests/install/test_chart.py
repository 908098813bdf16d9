"""The chart renders the same objects as the manifests; jobs survive install, upgrade, rollback and uninstall."""

import asyncio
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.control_plane import ControlPlane
from testbed.request import RequestError
from tests.install.installation import (
    CLUSTER_WIDE,
    CRD,
    MANAGER,
    OPERATOR,
    ROOT,
    Manifest,
    ObjectRef,
    manager_arguments,
    parse_objects,
    wait_kind_listed,
)

CHART = ROOT / "charts/paddle-operator"


class HelmError(RuntimeError):
    """Helm failed; the message is its output."""


def run_helm(helm: Path, *arguments: str, kubeconfig: Path | None = None) -> str:
    """Run Helm and return its output. Raises HelmError."""
    options = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    result = subprocess.run([helm, *arguments, *options], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise HelmError(result.stdout + result.stderr)
    return result.stdout


def render_chart(helm: Path, *values: str) -> dict[ObjectRef, Manifest]:
    settings = [argument for value in values for argument in ("--set", value)]
    return parse_objects(run_helm(helm, "template", "paddle-operator", str(CHART), "--namespace=default", *settings))


def without_namespace_annotations(objects: dict[ObjectRef, Manifest]) -> dict[ObjectRef, Manifest]:
    """Without the chart's resource-policy annotation, the only permitted difference."""
    for (kind, _, _), each in objects.items():
        if kind == "Namespace":
            each["metadata"].pop("annotations", None)
    return objects


def test_helm_lint_passes(helm: Path) -> None:
    assert "0 chart(s) failed" in run_helm(helm, "lint", "--strict", str(CHART))


def test_default_chart_matches_the_readme_manifests(helm: Path) -> None:
    assert without_namespace_annotations(render_chart(helm)) == parse_objects(OPERATOR.read_text())


def test_cluster_wide_chart_matches_its_manifest(helm: Path) -> None:
    assert without_namespace_annotations(render_chart(helm, "jobnamespace=", "userRoles=true")) == parse_objects(
        CLUSTER_WIDE.read_text()
    )


def test_several_namespaces_get_roles_only(helm: Path) -> None:
    objects = render_chart(helm, r"jobnamespace=team-a\, team-b")
    roles = {ref for ref in objects if "Role" in ref[0] and "manager" in ref[2]}
    kinds = ("Role", "paddle-manager-role"), ("RoleBinding", "paddle-manager-rolebinding")
    assert roles == {(kind, team, name) for team in ("team-a", "team-b") for kind, name in kinds}
    assert not any(kind.startswith("Cluster") for kind, _, _ in objects)
    assert "--namespace=team-a,team-b" in manager_arguments(objects[MANAGER])


def test_two_releases_share_no_object(helm: Path) -> None:
    """Otherwise Helm would refuse the second, or uninstalling the first would delete shared objects."""
    first, second = (
        render_chart(helm, f"controllernamespace={team}", f"jobnamespace={team}") for team in ("team-a", "team-b")
    )
    assert first.keys() & second.keys() == set()


SETTINGS: dict[str, tuple[str, Any]] = {
    "scheduling=volcano": ("args", "--scheduling=volcano"),
    "etcdServer=etcd:2379": ("args", "--etcd-server=etcd:2379"),
    r"portRange=40000\,50000": ("args", "--port-range=40000,50000"),
    "log.level=debug": ("args", "--log-level=debug"),
    "log.format=json": ("args", "--log-format=json"),
    "metrics.bindAddress=0": ("args", "--metrics-bind-address=0"),
    "metrics.tlsSecret=tls": ("volumes", "tls"),
    "metrics.tokenSecret=token": ("args", "--metrics-token-file=/metrics-token/token"),
    "extraArgs={--context=x}": ("args", "--context=x"),
    "image=other/controller:v9": ("image", "other/controller:v9"),
    "imagePullPolicy=Always": ("imagePullPolicy", "Always"),
    "resources.limits.memory=1Gi": ("resources", "1Gi"),
    "replicas=2": ("replicas", 2),
    "priorityClassName=high": ("priorityClassName", "high"),
    "nodeSelector.disk=ssd": ("nodeSelector", "ssd"),
    "tolerations[0].operator=Exists": ("tolerations", "Exists"),
    "imagePullSecrets[0].name=pull": ("imagePullSecrets", "pull"),
    "serviceAccount.name=other": ("serviceAccountName", "other"),
    "podLabels.team=vision": ("labels", "vision"),
    "podAnnotations.team=vision": ("annotations", "vision"),
    "extraEnv[0].name=HTTPS_PROXY": ("env", "HTTPS_PROXY"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_value_reaches_its_field(helm: Path, setting: str) -> None:
    field, value = SETTINGS[setting]
    values = [each for each in find_values(render_chart(helm, setting)[MANAGER], field) if str(value) in str(each)]
    assert values, f"no {field} with {value}"


def find_values(node: Any, field: str) -> list[Any]:
    """The values of all fields of this name below a node."""
    if isinstance(node, list):
        return [value for item in node for value in find_values(item, field)]
    if not isinstance(node, dict):
        return []
    return [value for key, value in node.items() if key == field] + [
        value for child in node.values() for value in find_values(child, field)
    ]


@pytest.mark.parametrize(
    "invalid",
    [
        "replicas=-1",
        "scheduling=kueue",
        "imagePullPolicy=Sometimes",
        "nosuch=1",
        "log.level=loud",
        "metrics.bindAddress=9090",
        r"jobnamespace=\,",
        "jobnamespace=Team_A",
        "jobnamespace=null",
        "metrics.serviceMonitor.interval=often",
    ],
)
def test_invalid_value_is_refused_by_the_schema(helm: Path, invalid: str) -> None:
    with pytest.raises(HelmError, match=invalid.partition("=")[0].split(".")[-1]):
        render_chart(helm, invalid)


@pytest.mark.parametrize("setting", ["metrics.serviceMonitor.enabled=true", "metrics.service=true"])
def test_monitor_without_metrics_is_refused(helm: Path, setting: str) -> None:
    with pytest.raises(HelmError, match=r"metrics\.bindAddress is 0, which serves no metrics"):
        render_chart(helm, setting, "metrics.bindAddress=0")


def test_numeric_names_stay_strings(helm: Path) -> None:
    setting = "--set-string=jobnamespace=123,controllernamespace=456,serviceAccount.name=7,metrics.tlsSecret=8"
    objects = parse_objects(run_helm(helm, "template", "paddle-operator", str(CHART), "--namespace=default", setting))
    assert ("Role", "123", "paddle-manager-role") in objects
    assert ("Deployment", "456", MANAGER[2]) in objects
    (account,) = (name for kind, _, name in objects if kind == "ServiceAccount")
    (binding,) = (each for (kind, namespace, _), each in objects.items() if (kind, namespace) == ("RoleBinding", "123"))
    pod = objects["Deployment", "456", MANAGER[2]]["spec"]["template"]["spec"]
    names = (
        account,
        binding["subjects"][0]["name"],
        pod["serviceAccountName"],
        pod["volumes"][0]["secret"]["secretName"],
    )
    assert names == ("7", "7", "7", "8")


def test_scrape_interval_formats(helm: Path) -> None:
    settings = "metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.interval=1m30s"
    (monitor,) = (each for (kind, _, _), each in render_chart(helm, *settings).items() if kind == "ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["interval"] == "1m30s"


def test_service_monitor_matches_config(helm: Path) -> None:
    objects = render_chart(helm, "metrics.serviceMonitor.enabled=true")
    for name in ("service.yaml", "service_monitor.yaml"):
        for ref, each in parse_objects((ROOT / "config/prometheus" / name).read_text()).items():
            assert objects[ref] == each


@pytest.mark.timeout(600)
async def test_jobs_survive_the_release_lifecycle(plane: ControlPlane, helm: Path) -> None:
    kubeconfig = plane.write_kubeconfig("tester-1")

    async def run(*arguments: str) -> str:
        return await asyncio.to_thread(run_helm, helm, *arguments, kubeconfig=kubeconfig)

    async def replicas() -> str:
        query = ("get", "deployment", MANAGER[2], "-o", "jsonpath={.spec.replicas}")
        return await plane.kubectl("-n", "paddle-system", *query)

    await run("install", "paddle-operator", str(CHART))
    assert "paddlejobs.batch.paddlepaddle.org" in await plane.kubectl("get", "crd")
    assert await replicas() == "1"
    await wait_kind_listed(plane, "paddlejobs")
    job = yaml.safe_load((ROOT / "deploy/examples/wide_and_deep.yaml").read_text())
    await plane.kubectl("-n", "paddle-system", "apply", "-f", "-", stdin=yaml.safe_dump(job))
    output = await run("upgrade", "paddle-operator", str(CHART), "--set", "replicas=2")
    assert await replicas() == "2"
    (apply_crd,) = re.findall(r"^  kubectl (apply .*) -f deploy/v1/crd.yaml$", output, re.MULTILINE)
    (crd,) = parse_objects(CRD.read_text()).values()
    crd["spec"]["versions"][0]["additionalPrinterColumns"][0]["description"] = "changed by an upgrade"
    await plane.kubectl(*shlex.split(apply_crd), "-f", "-", stdin=yaml.safe_dump(crd))
    assert "changed by an upgrade" in await plane.kubectl(
        "get", "crd", "paddlejobs.batch.paddlepaddle.org", "-o", "yaml"
    )
    await run("rollback", "paddle-operator", "1")
    assert await replicas() == "1"
    await run("uninstall", "paddle-operator")
    with pytest.raises(RequestError, match="not found"):
        await replicas()
    assert "wide-ande-deep" in await plane.kubectl("-n", "paddle-system", "get", "pdj")
