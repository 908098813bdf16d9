"""Jobs keep running while the operator is replaced: the Go operator by this one, and this one by another version."""

from pathlib import Path

import pytest
import yaml

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import PODS
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.request import RequestError
from tests.install.installation import (
    CLUSTER_WIDE,
    CRD,
    MANAGER,
    NAMESPACE,
    OPERATOR,
    manager_arguments,
    parse_objects,
    restart_controller_manager,
    run_manager,
    service_account_kubeconfig,
)
from tests.stories.go_operator import FINALIZER, NEWEST, GoJob
from tests.stories.harness import ClusterHarness, FullObject, pods_of_job
from tests.stories.jobs import make_job

GO_OPERATOR = Path(__file__).parent / "go_operator.yaml"
DEPLOYMENT = ("-n", NAMESPACE, "get", f"deployment/{MANAGER[2]}")
IMAGE = "jsonpath={.metadata.uid} {.spec.template.spec.containers[*].image}"


def uids_by_name(pods: dict[str, FullObject]) -> dict[str, str]:
    return {name: pod.uid for name, pod in pods_of_job(pods, "simple").items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("manifest", "namespace", "leftovers"),
    [
        (OPERATOR, NAMESPACE, ["clusterrolebinding/paddle-manager-rolebinding", "clusterrole/paddle-manager-role"]),
        (CLUSTER_WIDE, "team-a", []),
    ],
    ids=["one namespace", "every namespace"],
)
async def test_upgrade_from_the_go_operator_keeps_jobs(
    plane: ControlPlane, tmp_path: Path, manifest: Path, namespace: str, leftovers: list[str]
) -> None:
    """Deployment selectors and roleRefs are immutable: apply would be refused if they differed."""
    for each in {NAMESPACE, namespace}:
        await plane.kubectl("create", "namespace", each)
    await plane.kubectl("apply", "-f", str(GO_OPERATOR))
    before, _ = (await plane.kubectl(*DEPLOYMENT, "-o", IMAGE)).split()
    async with (
        Client(plane.connection()) as client,
        HollowNodes(client, count=2, speed=20.0) as nodes,
        ClusterHarness(plane, client, nodes, namespace).open() as harness,
    ):
        pods = uids_by_name(await GoJob(harness, NEWEST, make_job("simple", ps=1, workers=2)).create_running())
        await plane.kubectl("apply", "-f", str(CRD))
        await plane.kubectl("apply", "-f", str(manifest))
        for name in leftovers:
            await plane.kubectl("delete", name)
        assert (await plane.kubectl(*DEPLOYMENT, "-o", IMAGE)).split() == [before, "paddle-operator/controller:v0.1.0"]
        role = await plane.kubectl("get", "clusterrole", "paddle-manager-role", "--ignore-not-found", "-o", "yaml")
        assert "pods/exec" not in role, "the Go operator's cluster-wide role must be gone"
        arguments = manager_arguments(parse_objects(manifest.read_text())[MANAGER])
        async with run_manager(await service_account_kubeconfig(plane, tmp_path), *arguments):
            await harness.wait_job("simple", lambda job: job.status.get("ready") == "3/3")
            await harness.wait_job(
                "simple", lambda job: FINALIZER not in job.metadata.finalizers
            )  # removed after the status write
            assert uids_by_name(await harness.list_pods()) == pods
            await harness.exit_pods("simple-worker-*")
            await harness.wait_phase("simple", "Completed")


@pytest.mark.timeout(600)
async def test_jobs_survive_upgrade_and_go_with_uninstall(plane: ControlPlane, tmp_path: Path) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(OPERATOR))
    await restart_controller_manager(plane)
    arguments = manager_arguments(parse_objects(OPERATOR.read_text())[MANAGER])
    kubeconfig = await service_account_kubeconfig(plane, tmp_path)
    async with (
        Client(plane.connection()) as client,
        HollowNodes(client, count=2) as nodes,
        ClusterHarness(plane, client, nodes, NAMESPACE).open() as harness,
    ):
        async with run_manager(kubeconfig, *arguments):
            await harness.submit(make_job("simple", ps=1, workers=2))
            await harness.wait_job("simple", lambda job: (job.status or {}).get("ready") == "3/3")
            await harness.run_unrelated_job("before")  # its writes for the first job are done by then
        pods = uids_by_name(await harness.list_pods())
        await plane.kubectl("apply", "-f", "-", stdin=upgraded_manifests())
        async with harness.record_writes() as writes, run_manager(kubeconfig, *arguments):
            await harness.run_unrelated_job("other")
        assert [write for write in writes if write.name.startswith("simple")] == []
        assert uids_by_name(await harness.list_pods()) == pods
        await plane.kubectl("delete", "-f", str(CRD), "-f", str(OPERATOR), "--timeout=240s")
        with pytest.raises(RequestError, match="not found"):
            await plane.kubectl("get", "namespace", NAMESPACE)
        assert await client.list_all(PODS, Scope(NAMESPACE)) == []


def upgraded_manifests() -> str:
    """CRD and operator as an upgrade applies them: with one more column and another image."""
    crds, manifest = parse_objects(CRD.read_text()), parse_objects(OPERATOR.read_text())
    (crd,) = crds.values()
    crd["spec"]["versions"][0]["additionalPrinterColumns"].append(
        {"name": "Restarts", "type": "integer", "jsonPath": ".status.attempt"}
    )
    (container,) = manifest[MANAGER]["spec"]["template"]["spec"]["containers"]
    container["image"] = "paddle-operator/controller:v9.0.0"
    return str(yaml.safe_dump_all([crd, *manifest.values()]))
