"""The chart gives what the manifests give, and lives through install, upgrade, rollback and uninstall."""

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
from tests.install.installed import (
    CLUSTER_WIDE,
    CRD,
    MANAGER,
    OPERATOR,
    ROOT,
    Manifest,
    Place,
    arguments_of,
    objects,
    until_known,
)

CHART = ROOT / "charts/paddle-operator"


class HelmError(RuntimeError):
    """What Helm said against it."""


def helm_says(helm: Path, *arguments: str, kubeconfig: Path | None = None) -> str:
    """Raises HelmError."""
    where = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    done = subprocess.run([helm, *arguments, *where], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HelmError(done.stdout + done.stderr)
    return done.stdout


def rendered(helm: Path, *values: str) -> dict[Place, Manifest]:
    settings = [part for value in values for part in ("--set", value)]
    return objects(helm_says(helm, "template", "paddle-operator", str(CHART), "--namespace=default", *settings))


def without_notes(found: dict[Place, Manifest]) -> dict[Place, Manifest]:
    """The chart's namespace says that it is to be kept, and that is all that may differ."""
    for (kind, _, _), each in found.items():
        if kind == "Namespace":
            each["metadata"].pop("annotations", None)
    return found


def test_helm_lint_passes(helm: Path) -> None:
    assert "0 chart(s) failed" in helm_says(helm, "lint", "--strict", str(CHART))


def test_default_chart_matches_the_readme_manifests(helm: Path) -> None:
    assert without_notes(rendered(helm)) == objects(OPERATOR.read_text())


def test_cluster_wide_chart_matches_its_manifest(helm: Path) -> None:
    assert without_notes(rendered(helm, "jobnamespace=", "userRoles=true")) == objects(CLUSTER_WIDE.read_text())


def test_several_namespaces_get_roles_only(helm: Path) -> None:
    found = rendered(helm, r"jobnamespace=team-a\, team-b")
    roles = {place for place in found if "Role" in place[0] and "manager" in place[2]}
    kinds = ("Role", "paddle-manager-role"), ("RoleBinding", "paddle-manager-rolebinding")
    assert roles == {(kind, team, name) for team in ("team-a", "team-b") for kind, name in kinds}
    assert not any(kind.startswith("Cluster") for kind, _, _ in found)
    assert "--namespace=team-a,team-b" in arguments_of(found[MANAGER])


def test_two_releases_share_no_object(helm: Path) -> None:
    """Helm would refuse the second, or the first one's end would take it along."""
    here, there = (rendered(helm, f"controllernamespace={team}", f"jobnamespace={team}") for team in ("here", "there"))
    assert here.keys() & there.keys() == set()


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
    found = [each for each in fields(rendered(helm, setting)[MANAGER], field) if str(value) in str(each)]
    assert found, f"no {field} with {value}"


def fields(part: Any, name: str) -> list[Any]:
    if isinstance(part, list):
        return [found for each in part for found in fields(each, name)]
    if not isinstance(part, dict):
        return []
    return [value for key, value in part.items() if key == name] + [
        found for value in part.values() for found in fields(value, name)
    ]


@pytest.mark.parametrize(
    "wrong",
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
def test_invalid_value_is_refused_by_the_schema(helm: Path, wrong: str) -> None:
    with pytest.raises(HelmError, match=wrong.partition("=")[0].split(".")[-1]):
        rendered(helm, wrong)


@pytest.mark.parametrize("wish", ["metrics.serviceMonitor.enabled=true", "metrics.service=true"])
def test_monitor_without_metrics_is_refused(helm: Path, wish: str) -> None:
    with pytest.raises(HelmError, match=r"metrics\.bindAddress is 0, which serves no metrics"):
        rendered(helm, wish, "metrics.bindAddress=0")


def test_numeric_names_stay_strings(helm: Path) -> None:
    written = "--set-string=jobnamespace=123,controllernamespace=456,serviceAccount.name=7,metrics.tlsSecret=8"
    found = objects(helm_says(helm, "template", "paddle-operator", str(CHART), "--namespace=default", written))
    assert ("Role", "123", "paddle-manager-role") in found
    assert ("Deployment", "456", MANAGER[2]) in found
    (account,) = (name for kind, _, name in found if kind == "ServiceAccount")
    (binding,) = (each for (kind, place, _), each in found.items() if (kind, place) == ("RoleBinding", "123"))
    pod = found["Deployment", "456", MANAGER[2]]["spec"]["template"]["spec"]
    named = (
        account,
        binding["subjects"][0]["name"],
        pod["serviceAccountName"],
        pod["volumes"][0]["secret"]["secretName"],
    )
    assert named == ("7", "7", "7", "8")


def test_scrape_interval_formats(helm: Path) -> None:
    settings = "metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.interval=1m30s"
    (monitor,) = (each for (kind, _, _), each in rendered(helm, *settings).items() if kind == "ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["interval"] == "1m30s"


def test_service_monitor_matches_config(helm: Path) -> None:
    found = rendered(helm, "metrics.serviceMonitor.enabled=true")
    for name in ("service.yaml", "service_monitor.yaml"):
        for place, each in objects((ROOT / "config/prometheus" / name).read_text()).items():
            assert found[place] == each


@pytest.mark.timeout(600)
async def test_jobs_survive_the_release_lifecycle(plane: ControlPlane, helm: Path) -> None:
    kubeconfig = plane.kubeconfig_for("tester-1")

    async def run(*arguments: str) -> str:
        return await asyncio.to_thread(helm_says, helm, *arguments, kubeconfig=kubeconfig)

    async def replicas() -> str:
        what = ("get", "deployment", MANAGER[2], "-o", "jsonpath={.spec.replicas}")
        return await plane.kubectl("-n", "paddle-system", *what)

    await run("install", "paddle-operator", str(CHART))
    assert "paddlejobs.batch.paddlepaddle.org" in await plane.kubectl("get", "crd")
    assert await replicas() == "1"
    await until_known(plane, "paddlejobs")
    job = yaml.safe_load((ROOT / "deploy/examples/wide_and_deep.yaml").read_text())
    await plane.kubectl("-n", "paddle-system", "apply", "-f", "-", stdin=yaml.safe_dump(job))
    told = await run("upgrade", "paddle-operator", str(CHART), "--set", "replicas=2")
    assert await replicas() == "2"
    notes = re.findall(r"^  kubectl (apply .*) -f deploy/v1/crd.yaml$", told, re.MULTILINE)
    (kind,) = objects(CRD.read_text()).values()
    kind["spec"]["versions"][0]["additionalPrinterColumns"][0]["description"] = "of another version"
    await plane.kubectl(*shlex.split(notes[0]), "-f", "-", stdin=yaml.safe_dump(kind))
    assert "of another version" in await plane.kubectl("get", "crd", "paddlejobs.batch.paddlepaddle.org", "-o", "yaml")
    await run("rollback", "paddle-operator", "1")
    assert await replicas() == "1"
    await run("uninstall", "paddle-operator")
    with pytest.raises(RequestError, match="not found"):
        await replicas()
    assert "wide-ande-deep" in await plane.kubectl("-n", "paddle-system", "get", "pdj")
