"""The commands of the README, run as an administrator would on a control plane without the operator.

They are read from the page; tests/cli/test_docs.py shows that the Chinese README has the same.
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
from tests.install.installation import (
    CRD,
    MANAGER,
    NAMESPACE,
    OPERATOR,
    ROOT,
    manager_arguments,
    parse_objects,
    restart_controller_manager,
    run_manager,
    service_account_kubeconfig,
    start_manager,
)
from tests.stories.harness import ClusterHarness
from tools.generated import stale_files
from tools.manifests import manifests

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VOLATILE_COLUMNS = {"CREATED AT", "AGE", "STARTED"}
GENERATED_SUFFIX = re.compile(r"-\w{8,10}-\w{5}$")


def install_section() -> str:
    _, _, remainder = (ROOT / "README.md").read_text().partition("## Install it on a cluster\n")
    return remainder.partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(install_section()) if kind == language]


async def run_commands(plane: ControlPlane, *commands: str) -> str:
    """Run kubectl commands and return the output of the last."""
    output = ""
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "kubectl"
        output = await plane.kubectl(*arguments)
    return output


def rows(table: str) -> list[dict[str, str]]:
    """The rows of a kubectl table by column; volatile values are replaced by an ellipsis."""
    header, *lines = (re.split(r" {2,}", line.strip()) for line in table.strip().splitlines())
    return [
        {
            name: "…" if name in VOLATILE_COLUMNS else GENERATED_SUFFIX.sub("-…", value)
            for name, value in zip(header, line, strict=True)
        }
        for line in lines
    ]


def test_manifests_match_kustomize_output(control_plane_binaries: object) -> None:
    assert stale_files(manifests()) == []


@pytest.mark.timeout(600)
async def test_readme_install_and_uninstall(plane: ControlPlane, tmp_path: Path) -> None:
    install_crd, install_operator, run_example, uninstall = (block.splitlines() for block in blocks("sh"))
    crd_rows, operator_rows, job_rows = (rows(block) for block in blocks("text"))
    assert rows(await run_commands(plane, *install_crd)) == crd_rows
    *install, get_pods = install_operator
    await run_commands(plane, *install)
    await restart_controller_manager(plane)
    async with (
        Client(plane.connection()) as client,
        HollowNodes(client, count=2) as nodes,
        ClusterHarness(plane, client, nodes, NAMESPACE).open() as harness,
    ):
        await harness.wait_pods(lambda pods: any(pod.phase == "Running" for pod in pods.values()))
        assert rows(await run_commands(plane, get_pods)) == operator_rows
        arguments = manager_arguments(parse_objects(OPERATOR.read_text())[MANAGER])
        async with start_manager(await service_account_kubeconfig(plane, tmp_path), *arguments):
            *run, get_jobs = run_example
            await run_commands(plane, *run)
            await harness.wait_job("wide-ande-deep", lambda job: (job.status or {}).get("ready") == "4/4")
            assert rows(await run_commands(plane, get_jobs)) == job_rows
            await run_commands(plane, *uninstall)
        with pytest.raises(RequestError, match="not found"):
            await plane.kubectl("get", "namespace", NAMESPACE)
        with pytest.raises(RequestError, match=r"have a resource type|could not find"):
            await plane.kubectl("get", "pdj")
        assert await client.list_all(PODS, Scope(NAMESPACE)) == []


@pytest.mark.timeout(600)
async def test_readme_arguments_for_volcano_and_etcd(
    plane: ControlPlane, volcano_build: VolcanoPrograms, tmp_path: Path
) -> None:
    (documented,) = (yaml.safe_load(block)["containers"][0] for block in blocks("yaml"))
    (etcd,) = re.findall(r"--etcd-server=([\w.:-]+)", install_section())
    gang_example, elastic_example = re.findall(r"deploy/\w+/\w+\.yaml(?=` are gangs|` meet)", install_section())
    manifest = parse_objects(OPERATOR.read_text())
    (container,) = manifest[MANAGER]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == documented["command"]
    container["args"] = [*documented["args"], f"--etcd-server={etcd}"]
    with Volcano.start(plane, volcano_build):
        await plane.kubectl("apply", "-f", str(CRD))
        await plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifest.values()))
        async with (
            Client(plane.connection()) as client,
            HollowNodes(client, count=2, gpus=4) as nodes,
            ClusterHarness(plane, client, nodes, NAMESPACE).open() as harness,
            run_manager(await service_account_kubeconfig(plane, tmp_path), *container["args"]),
        ):
            await plane.kubectl(
                "-n", NAMESPACE, "apply", "-f", str(ROOT / gang_example), "-f", str(ROOT / elastic_example)
            )
            await harness.wait_phase("wide-ande-deep-volcano", "Running")
            groups = await plane.kubectl("-n", NAMESPACE, "get", "podgroup", "-o", "name")
            assert "podgroup.scheduling.volcano.sh/wide-ande-deep-volcano" in groups.splitlines()
            pods = await harness.wait_pods(lambda pods: "resnet-elastic-worker-2" in pods)
            env = {
                each["name"]: each.get("value") for each in pods["resnet-elastic-worker-2"].spec["containers"][0]["env"]
            }
            assert etcd in (env.get("PADDLE_ELASTIC_SERVER") or "")
