"""Writing with a stock kubectl: apply, create, edit, patch, label, scale, delete, wait."""

import asyncio
import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from testbed.request import RequestError
from tests.local.served.objects import ROOT, make_job, make_object, make_pod
from tests.local.served.servers import MERGE, KubectlServer, Manifest

EXAMPLE = ROOT / "deploy/examples/wide_and_deep.yaml"
CONFIG = make_object("ConfigMap", "config", data={"a": "b"})
WITHIN_SECONDS = 100.0


def to_yaml(*manifests: Manifest) -> str:
    return yaml.safe_dump_all(manifests)


async def get_json(server: KubectlServer, *target: str) -> Any:
    return json.loads(await server.kubectl("get", *target, "-o", "json"))


async def test_apply_creates_then_configures(candidate: KubectlServer, real: KubectlServer) -> None:
    """The second apply changes nothing, the third updates changed fields and removes missing ones."""
    first = [make_job("mnist", intranet="PodIP"), make_object("Service", "svc", spec=SERVICE), CONFIG]
    second = [
        make_job("mnist", withGloo=1),
        make_object("Service", "svc", spec=UPDATED_SERVICE),
        CONFIG | {"data": {"c": "d"}},
    ]
    outputs = []
    for server in (candidate, real):
        created = await server.kubectl("apply", "--filename=-", stdin=to_yaml(*first))
        again = await server.kubectl("apply", "--filename=-", stdin=to_yaml(*first))
        changed = await server.kubectl("apply", "--filename=-", stdin=to_yaml(*second))
        outputs.append([created, again, changed])
        assert (await get_json(server, "configmap", "config"))["data"] == {"c": "d"}
        assert (await get_json(server, "pdj", "mnist"))["spec"]["withGloo"] == 1
        ports = (await get_json(server, "service", "svc"))["spec"]["ports"]
        assert [(port["name"], port["port"]) for port in ports] == [("b", 2), ("c", 3)]
    assert outputs[0] == outputs[1]
    assert [line.split()[1] for line in outputs[0][1].splitlines()] == ["unchanged"] * 3


SERVICE: Manifest = {
    "clusterIP": "None",
    "selector": {"a": "b"},
    "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
}
UPDATED_SERVICE = SERVICE | {"ports": [{"name": "b", "port": 2}, {"name": "c", "port": 3}]}


async def test_apply_of_every_example(embedded: KubectlServer) -> None:
    for path in sorted(EXAMPLE.parent.glob("*.yaml")):
        assert "created" in await embedded.kubectl("apply", f"--filename={path}")
        await embedded.kubectl("delete", "pdj,podgroups", "--all")


async def test_server_side_apply_is_rejected_with_advice(embedded: KubectlServer) -> None:
    process = await embedded.run_kubectl("apply", "--server-side", "--filename=-", stdin=to_yaml(CONFIG))
    assert process.returncode == 1
    assert "does not support server-side apply" in process.stderr


async def test_unknown_field_is_rejected_with_its_path(candidate: KubectlServer, real: KubectlServer) -> None:
    """kubectl sends fieldValidation=Strict if the server's OpenAPI has the parameter."""
    outputs = []
    for server in (candidate, real):
        for wrong in (make_job("typo", cleanPodPolice="Never"), make_pod("typo", imagePulPolicy="Always")):
            process = await server.run_kubectl("apply", "--filename=-", stdin=to_yaml(wrong))
            assert process.returncode == 1
            outputs.append(process.stderr.strip())
    assert outputs[:2] == outputs[2:]
    assert 'unknown field "spec.cleanPodPolice"' in outputs[0]
    assert 'unknown field "spec.containers[0].imagePulPolicy"' in outputs[1]


async def test_unknown_field_can_be_a_warning(embedded: KubectlServer) -> None:
    wrong = to_yaml(make_pod("typo", imagePulPolicy="Always"))
    process = await embedded.run_kubectl("create", "--validate=warn", "--filename=-", stdin=wrong)
    assert process.returncode == 0
    assert 'Warning: unknown field "spec.containers[0].imagePulPolicy"' in process.stderr


async def test_create_of_an_existing_object_fails(embedded: KubectlServer) -> None:
    text = to_yaml(CONFIG, make_object("Secret", "a", stringData={"b": "c"}))
    assert (
        await embedded.kubectl("create", "--filename=-", stdin=text) == "configmap/config created\nsecret/a created\n"
    )
    again = await embedded.run_kubectl("create", "--filename=-", stdin=to_yaml(CONFIG))
    assert 'configmaps "config" already exists' in again.stderr
    assert (await get_json(embedded, "secret", "a"))["data"] == {"b": "Yw=="}


@pytest.mark.parametrize(
    "what",
    [
        ["configmap", "created", "--from-literal=a=b"],
        ["secret", "generic", "created", "--from-literal=a=b"],
        ["namespace", "created"],
        ["service", "clusterip", "created", "--tcp=80:8080"],
    ],
    ids=" ".join,
)
async def test_create_from_flags_needs_a_file(embedded: KubectlServer, what: list[str]) -> None:
    """Without a file kubectl sends protobuf, which is not supported."""
    direct = await embedded.run_kubectl("create", *what)
    assert direct.returncode == 1
    assert "accepted media types include: application/json" in direct.stderr
    assert "add --dry-run=client -o yaml and pipe the output into kubectl apply -f -" in direct.stderr
    text = await embedded.kubectl("create", *what, "--dry-run=client", "-o", "yaml")
    assert "created" in await embedded.kubectl("apply", "--filename=-", stdin=text)


async def test_run_creates_a_pod(embedded: KubectlServer) -> None:
    await embedded.kubectl("run", "one", "--image=example.com/image", "--restart=Never")
    assert (await get_json(embedded, "pod", "one"))["spec"]["containers"][0]["imagePullPolicy"] == "Always"


async def test_server_dry_run_stores_nothing(embedded: KubectlServer) -> None:
    text = await embedded.kubectl(
        "apply", "--dry-run=server", "--filename=-", "-o", "yaml", stdin=to_yaml(make_pod("dry"))
    )
    assert yaml.safe_load(text)["spec"]["dnsPolicy"] == "ClusterFirst"
    with pytest.raises(RequestError, match="not found"):
        await embedded.kubectl("get", "pod", "dry")


async def test_diff_shows_what_apply_would_change(embedded: KubectlServer) -> None:
    await embedded.kubectl("apply", "--filename=-", stdin=to_yaml(CONFIG))
    process = await embedded.run_kubectl("diff", "--filename=-", stdin=to_yaml(CONFIG | {"data": {"a": "c"}}))
    assert process.returncode == 1
    assert re.search(r"-  a: b\n\+  a: c", process.stdout)


async def test_apply_of_a_list(embedded: KubectlServer) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [CONFIG, make_job("mnist")]}
    outputs = await embedded.kubectl("apply", "--filename=-", stdin=json.dumps(listed))
    assert outputs.splitlines() == ["configmap/config created", "paddlejob.batch.paddlepaddle.org/mnist created"]


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        ("merge", '{"data": {"a": null, "c": "d"}}'),
        ("strategic", '{"data": {"a": null, "c": "d"}}'),
        ("json", '[{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/c", "value": "d"}]'),
    ],
)
async def test_patch_types(embedded: KubectlServer, patch_type: str, patch: str) -> None:
    await embedded.create_and_get(CONFIG)
    outputs = await embedded.kubectl("patch", "configmap", "config", f"--type={patch_type}", f"--patch={patch}")
    assert outputs == "configmap/config patched\n"
    assert (await get_json(embedded, "configmap", "config"))["data"] == {"c": "d"}


async def test_strategic_patch_of_a_job_is_rejected(candidate: KubectlServer, real: KubectlServer) -> None:
    outputs = []
    for server in (candidate, real):
        await server.create_and_get(make_job("mnist"))
        process = await server.run_kubectl(
            "patch", "pdj", "mnist", "--type=strategic", '--patch={"spec": {"withGloo": 1}}'
        )
        assert process.returncode == 1
        outputs.append("unknown format" in process.stderr)
    assert outputs == [True, True]


async def test_patch_of_the_status_subresource(embedded: KubectlServer) -> None:
    await embedded.create_and_get(make_pod("pod"))
    patch = '--patch={"status": {"phase": "Running"}}'
    await embedded.kubectl("patch", "pod", "pod", "--subresource=status", patch)
    assert (await get_json(embedded, "pod", "pod"))["status"]["phase"] == "Running"


async def test_label_and_annotate(embedded: KubectlServer) -> None:
    for kind, manifest in (("configmap", CONFIG), ("pdj", make_job("config"))):
        await embedded.create_and_get(manifest)
        await embedded.kubectl("label", kind, "config", "a=b", "c=d")
        await embedded.kubectl("label", kind, "config", "a-", "c=e", "--overwrite")
        await embedded.kubectl("annotate", kind, "config", "note=hello")
        metadata = (await get_json(embedded, kind, "config"))["metadata"]
        assert metadata["labels"] == {"c": "e"}
        assert metadata["annotations"] == {"note": "hello"}


async def test_edit(embedded: KubectlServer) -> None:
    await embedded.create_and_get(CONFIG)
    command = [str(embedded.kubectl_program), f"--kubeconfig={embedded.kubeconfig}", "edit", "configmap", "config"]
    environment = {"HOME": str(embedded.home), "PATH": "/usr/bin:/bin", "KUBE_EDITOR": "sed -i /^..a:/s/b$/edited/"}
    process = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, env=environment
    )
    assert process.returncode == 0, process.stderr
    assert (await get_json(embedded, "configmap", "config"))["data"] == {"a": "edited"}


async def test_scale_a_job(candidate: KubectlServer, real: KubectlServer) -> None:
    outputs = []
    for server in (candidate, real):
        await server.create_and_get(make_job("mnist"))
        outputs.append(await server.kubectl("scale", "pdj/mnist", "--replicas=3", "--current-replicas=2"))
        assert (await get_json(server, "pdj", "mnist"))["spec"]["worker"]["replicas"] == 3
        wrong = await server.run_kubectl("scale", "pdj/mnist", "--replicas=5", "--current-replicas=2")
        outputs.append(wrong.stderr)
    assert outputs[:2] == outputs[2:]


OWNER = make_object("ConfigMap", "owner")


async def delete_owner(server: KubectlServer, cascade: str) -> tuple[str, list[str]]:
    """kubectl's output of the deletion, and the remaining children without owner."""
    owner = await server.create_and_get(OWNER)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    child = make_object("Secret", "child", stringData={"a": "b"})
    child["metadata"]["ownerReferences"] = [reference | {"blockOwnerDeletion": True}]
    await server.create_and_get(child)
    outputs = await server.kubectl("delete", "configmap", "owner", f"--cascade={cascade}", "--timeout=100s")
    if cascade != "orphan":
        await wait_deleted(server, "secret/child")
    secrets = (await get_json(server, "secrets"))["items"]
    return outputs, [each["metadata"]["name"] for each in secrets if not each["metadata"].get("ownerReferences")]


async def wait_deleted(server: KubectlServer, target: str) -> None:
    await server.kubectl("wait", target, "--for=delete", f"--timeout={WITHIN_SECONDS:.0f}s")


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_delete_with_each_cascade(candidate: KubectlServer, real: KubectlServer, cascade: str) -> None:
    ours, theirs = await delete_owner(candidate, cascade), await delete_owner(real, cascade)
    assert ours == theirs
    assert ours[1] == (["child"] if cascade == "orphan" else [])


async def test_delete_waits_for_a_finalizer(embedded: KubectlServer) -> None:
    blocked = make_object("ConfigMap", "blocked")
    blocked["metadata"]["finalizers"] = ["example.com/blocked"]
    await embedded.create_and_get(blocked)
    deleting = asyncio.create_task(embedded.kubectl("delete", "configmap", "blocked", "--timeout=100s"))
    while "deletionTimestamp" not in (await get_json(embedded, "configmap", "blocked"))["metadata"]:
        await asyncio.sleep(0.02)
    assert not deleting.done()
    await embedded.send(
        "PATCH", embedded.path(blocked, name="blocked"), {"metadata": {"finalizers": None}}, media=MERGE
    )
    assert await deleting == 'configmap "blocked" deleted from default namespace\n'


async def test_delete_by_file_label_and_all(embedded: KubectlServer) -> None:
    for name in ("one", "two", "three"):
        config_map = make_object("ConfigMap", name)
        config_map["metadata"]["labels"] = {"which": name}
        await embedded.create_and_get(config_map)
    await embedded.kubectl("delete", "configmaps", "-l", "which=one")
    await embedded.kubectl("delete", "--filename=-", stdin=to_yaml(make_object("ConfigMap", "two")))
    assert (await embedded.kubectl("get", "configmaps", "-o", "name")).split() == ["configmap/three"]
    await embedded.kubectl("delete", "configmaps", "--all", "--wait=false")
    assert await embedded.kubectl("get", "configmaps", "-o", "name") == ""


async def test_delete_a_pod_at_once(embedded: KubectlServer) -> None:
    await embedded.create_and_get(make_pod("bound", spec={"nodeName": "local-1"}))
    await embedded.kubectl("delete", "pod", "bound", "--wait=false")
    assert (await get_json(embedded, "pod", "bound"))["metadata"]["deletionGracePeriodSeconds"] == 30
    assert re.search(r"bound +0/1 +Terminating", await embedded.kubectl("get", "pods"))
    await embedded.kubectl("delete", "pod", "bound", "--force", "--grace-period=0")
    await wait_deleted(embedded, "pod/bound")


async def test_wait_for_condition_and_json_path(embedded: KubectlServer) -> None:
    pod = make_pod("pod")
    await embedded.create_and_get(pod)
    waits = [
        asyncio.create_task(embedded.kubectl("wait", "pod/pod", condition, f"--timeout={WITHIN_SECONDS:.0f}s"))
        for condition in ("--for=condition=Ready", "--for=jsonpath={.status.phase}=Running")
    ]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await embedded.send("PATCH", f"{embedded.path(pod, name='pod')}/status", {"status": status}, media=MERGE)
    assert await asyncio.gather(*waits) == ["pod/pod condition met\n"] * 2


async def test_get_watch_prints_each_change(embedded: KubectlServer) -> None:
    await embedded.create_and_get(make_job("mnist"))
    command = [str(embedded.kubectl_program), f"--kubeconfig={embedded.kubeconfig}", "get", "pdj", "--watch"]
    watching = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={"HOME": str(embedded.home)}
    )
    assert watching.stdout
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            lines = [await watching.stdout.readline() for _ in range(2)]
            path = f"{embedded.path(make_job(), name='mnist')}/status"
            await embedded.send("PATCH", path, {"status": {"phase": "Running"}}, media=MERGE)
            lines.append(await watching.stdout.readline())
    finally:
        watching.kill()
        await watching.wait()
    assert [line.split()[:2] for line in lines[::2]] == [[b"NAME", b"STATUS"], [b"mnist", b"Running"]]


async def test_exec_is_rejected_with_advice(embedded: KubectlServer) -> None:
    await embedded.create_and_get(make_pod("pod"))
    running = {"status": {"phase": "Running"}}
    await embedded.send("PATCH", f"{embedded.path(make_pod(), name='pod')}/status", running, media=MERGE)
    process = await embedded.run_kubectl("exec", "pod", "--", "true")
    assert process.returncode == 1
    assert "does not support exec" in process.stderr
