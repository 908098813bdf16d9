"""The commands of the README, as an administrator types them, on a control plane where nothing of ours is yet.

They are read off the page; that the Chinese one has the same is shown in tests/cli/test_docs.py.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import PODS
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.request import RequestError
from testbed.volcano import Volcano
from testbed.volcano_assets import VolcanoPrograms
from tests.install.installed import (
    CRD,
    MANAGER,
    NAMESPACE,
    OPERATOR,
    ROOT,
    arguments_of,
    kubeconfig_of_account,
    look_for_kinds,
    manager_of,
    objects,
    process_of,
)
from tests.stories.harness import ClusterHarness
from tools.generated import stale_files
from tools.manifests import manifests

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGES = {"CREATED AT", "AGE", "STARTED"}  # what is another at each look
GENERATED = re.compile(r"-\w{8,10}-\w{5}$")


def section() -> str:
    _, _, rest = (ROOT / "README.md").read_text().partition("## Install it on a cluster\n")
    return rest.partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(section()) if kind == language]


async def typed(plane: ControlPlane, *commands: str) -> str:
    """What the last of them prints."""
    said = ""
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "kubectl"
        said = await plane.kubectl(*arguments)
    return said


def rows(table: str) -> list[dict[str, str]]:
    """Of what kubectl prints, by the heads of the columns; what changes from look to look is only there."""
    head, *lines = (re.split(r" {2,}", line.strip()) for line in table.strip().splitlines())
    return [
        {name: "…" if name in CHANGES else GENERATED.sub("-…", value) for name, value in zip(head, line, strict=True)}
        for line in lines
    ]


def test_manifests_match_kustomize_output(control_plane_binaries: object) -> None:
    assert stale_files(manifests()) == []


@pytest.mark.timeout(600)
async def test_readme_install_and_uninstall(plane: ControlPlane, tmp_path: Path) -> None:
    install_kind, install_operator, run_example, uninstall = (block.splitlines() for block in blocks("sh"))
    kinds, operators, jobs = (rows(block) for block in blocks("text"))
    assert rows(await typed(plane, *install_kind)) == kinds
    *install, get_pods = install_operator
    await typed(plane, *install)
    await look_for_kinds(plane)
    async with (
        Client(plane.connection()) as client,
        HollowNodes(client, count=2) as nodes,
        ClusterHarness(plane, client, nodes, NAMESPACE).open() as harness,
    ):
        await harness.wait_pods(lambda pods: any(pod.phase == "Running" for pod in pods.values()))
        assert rows(await typed(plane, get_pods)) == operators
        arguments = arguments_of(objects(OPERATOR.read_text())[MANAGER])
        async with process_of(await kubeconfig_of_account(plane, tmp_path), *arguments):
            *run, get_jobs = run_example
            await typed(plane, *run)
            await harness.wait_job("wide-ande-deep", lambda job: (job.status or {}).get("ready") == "4/4")
            assert rows(await typed(plane, get_jobs)) == jobs
            await typed(plane, *uninstall)
        with pytest.raises(RequestError, match="not found"):
            await plane.kubectl("get", "namespace", NAMESPACE)
        with pytest.raises(RequestError, match=r"have a resource type|could not find"):
            await plane.kubectl("get", "pdj")
        assert await client.list_all(PODS, Scope(NAMESPACE)) == []


@pytest.mark.timeout(600)
async def test_readme_arguments_for_volcano_and_etcd(
    plane: ControlPlane, volcano_built: VolcanoPrograms, tmp_path: Path
) -> None:
    (wanted,) = (yaml.safe_load(block)["containers"][0] for block in blocks("yaml"))
    (etcd,) = re.findall(r"--etcd-server=([\w.:-]+)", section())
    gang, elastic = re.findall(r"deploy/\w+/\w+\.yaml(?=` are gangs|` meet)", section())
    manifest = objects(OPERATOR.read_text())
    (container,) = manifest[MANAGER]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == wanted["command"]
    container["args"] = [*wanted["args"], f"--etcd-server={etcd}"]
    with Volcano.start(plane, volcano_built):
        await plane.kubectl("apply", "-f", str(CRD))
        await plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifest.values()))
        async with (
            Client(plane.connection()) as client,
            HollowNodes(client, count=2, gpus=4) as nodes,
            ClusterHarness(plane, client, nodes, NAMESPACE).open() as harness,
            manager_of(await kubeconfig_of_account(plane, tmp_path), *container["args"]),
        ):
            await plane.kubectl("-n", NAMESPACE, "apply", "-f", str(ROOT / gang), "-f", str(ROOT / elastic))
            await harness.wait_phase("wide-ande-deep-volcano", "Running")
            groups = await plane.kubectl("-n", NAMESPACE, "get", "podgroup", "-o", "name")
            assert "podgroup.scheduling.volcano.sh/wide-ande-deep-volcano" in groups.splitlines()
            pods = await harness.wait_pods(lambda found: "resnet-elastic-worker-2" in found)
            env = {
                each["name"]: each.get("value") for each in pods["resnet-elastic-worker-2"].spec["containers"][0]["env"]
            }
            assert etcd in (env.get("PADDLE_ELASTIC_SERVER") or "")
