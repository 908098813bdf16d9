"""What people change with a stock kubectl: apply, create, edit by patch, label, scale, delete, wait, logs."""

import asyncio
import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from testbed.request import RequestError
from tests.local.served.objects import ROOT, a_job, a_pod, an_object
from tests.local.served.servers import MERGE, Manifest, Served

EXAMPLE = ROOT / "deploy/examples/wide_and_deep.yaml"
CONFIG = an_object("ConfigMap", "config", data={"a": "b"})
WITHIN_SECONDS = 100.0


def as_text(*manifests: Manifest) -> str:
    return yaml.safe_dump_all(manifests)


async def content(server: Served, *whom: str) -> Any:
    return json.loads(await server.kubectl("get", *whom, "-o", "json"))


async def test_apply_makes_then_leaves_then_changes(beside: Served, real: Served) -> None:
    """Three times: the second finds nothing to do, the third changes what is different and drops what has gone."""
    first = [a_job("mnist", intranet="PodIP"), an_object("Service", "svc", spec=SERVICE), CONFIG]
    second = [
        a_job("mnist", withGloo=1),
        an_object("Service", "svc", spec=SERVICE_LATER),
        CONFIG | {"data": {"c": "d"}},
    ]
    said = []
    for server in (beside, real):
        made = await server.kubectl("apply", "--filename=-", stdin=as_text(*first))
        again = await server.kubectl("apply", "--filename=-", stdin=as_text(*first))
        changed = await server.kubectl("apply", "--filename=-", stdin=as_text(*second))
        said.append([made, again, changed])
        assert (await content(server, "configmap", "config"))["data"] == {"c": "d"}
        assert (await content(server, "pdj", "mnist"))["spec"]["withGloo"] == 1
        ports = (await content(server, "service", "svc"))["spec"]["ports"]
        assert [(port["name"], port["port"]) for port in ports] == [("b", 2), ("c", 3)]
    assert said[0] == said[1]
    assert [line.split()[1] for line in said[0][1].splitlines()] == ["unchanged"] * 3


SERVICE: Manifest = {
    "clusterIP": "None",
    "selector": {"a": "b"},
    "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
}
SERVICE_LATER = SERVICE | {"ports": [{"name": "b", "port": 2}, {"name": "c", "port": 3}]}


async def test_apply_of_every_example(embedded: Served) -> None:
    for path in sorted(EXAMPLE.parent.glob("*.yaml")):
        assert "created" in await embedded.kubectl("apply", f"--filename={path}")
        await embedded.kubectl("delete", "pdj,podgroups", "--all")


async def test_apply_on_the_servers_side_is_refused_with_a_sentence(embedded: Served) -> None:
    done = await embedded.kubectl_done("apply", "--server-side", "--filename=-", stdin=as_text(CONFIG))
    assert done.returncode == 1
    assert "no server-side apply" in done.stderr


async def test_a_typo_is_told_with_its_path(beside: Served, real: Served) -> None:
    """`fieldValidation=Strict`, which kubectl asks for where OpenAPI says that the server knows it."""
    said = []
    for server in (beside, real):
        for wrong in (a_job("typo", cleanPodPolice="Never"), a_pod("typo", imagePulPolicy="Always")):
            done = await server.kubectl_done("apply", "--filename=-", stdin=as_text(wrong))
            assert done.returncode == 1
            said.append(done.stderr.strip())
    assert said[:2] == said[2:]
    assert 'unknown field "spec.cleanPodPolice"' in said[0]
    assert 'unknown field "spec.containers[0].imagePulPolicy"' in said[1]


async def test_a_typo_is_only_warned_of_if_so_wished(embedded: Served) -> None:
    wrong = as_text(a_pod("typo", imagePulPolicy="Always"))
    done = await embedded.kubectl_done("create", "--validate=warn", "--filename=-", stdin=wrong)
    assert done.returncode == 0
    assert 'Warning: unknown field "spec.containers[0].imagePulPolicy"' in done.stderr


async def test_create_makes_each_thing_once(embedded: Served) -> None:
    text = as_text(CONFIG, an_object("Secret", "a", stringData={"b": "c"}))
    assert (
        await embedded.kubectl("create", "--filename=-", stdin=text) == "configmap/config created\nsecret/a created\n"
    )
    again = await embedded.kubectl_done("create", "--filename=-", stdin=as_text(CONFIG))
    assert 'configmaps "config" already exists' in again.stderr
    assert (await content(embedded, "secret", "a"))["data"] == {"b": "Yw=="}


@pytest.mark.parametrize(
    "what",
    [
        ["configmap", "made", "--from-literal=a=b"],
        ["secret", "generic", "made", "--from-literal=a=b"],
        ["namespace", "made"],
        ["service", "clusterip", "made", "--tcp=80:8080"],
    ],
    ids=" ".join,
)
async def test_what_create_makes_of_flags_goes_through_a_file(embedded: Served, what: list[str]) -> None:
    """Straight, kubectl sends these as protobuf, which is not in the closed list."""
    straight = await embedded.kubectl_done("create", *what)
    assert straight.returncode == 1
    assert "accepted media types include: application/json" in straight.stderr
    assert "add --dry-run=client -o yaml and pipe that into kubectl apply -f -" in straight.stderr
    text = await embedded.kubectl("create", *what, "--dry-run=client", "-o", "yaml")
    assert "created" in await embedded.kubectl("apply", "--filename=-", stdin=text)


async def test_run_makes_a_pod(embedded: Served) -> None:
    await embedded.kubectl("run", "one", "--image=example.com/image", "--restart=Never")
    assert (await content(embedded, "pod", "one"))["spec"]["containers"][0]["imagePullPolicy"] == "Always"


async def test_a_dry_run_stores_nothing(embedded: Served) -> None:
    text = await embedded.kubectl(
        "apply", "--dry-run=server", "--filename=-", "-o", "yaml", stdin=as_text(a_pod("dry"))
    )
    assert yaml.safe_load(text)["spec"]["dnsPolicy"] == "ClusterFirst"
    with pytest.raises(RequestError, match="not found"):
        await embedded.kubectl("get", "pod", "dry")


async def test_diff_shows_what_apply_would_change(embedded: Served) -> None:
    await embedded.kubectl("apply", "--filename=-", stdin=as_text(CONFIG))
    done = await embedded.kubectl_done("diff", "--filename=-", stdin=as_text(CONFIG | {"data": {"a": "c"}}))
    assert done.returncode == 1
    assert re.search(r"-  a: b\n\+  a: c", done.stdout)


async def test_a_list_is_applied_item_by_item(embedded: Served) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [CONFIG, a_job("mnist")]}
    said = await embedded.kubectl("apply", "--filename=-", stdin=json.dumps(listed))
    assert said.splitlines() == ["configmap/config created", "paddlejob.batch.paddlepaddle.org/mnist created"]


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge", '{"data": {"a": null, "c": "d"}}'),
        ("strategic", '{"data": {"a": null, "c": "d"}}'),
        ("json", '[{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/c", "value": "d"}]'),
    ],
)
async def test_patch_of_each_type(embedded: Served, kind: str, patch: str) -> None:
    await embedded.stored(CONFIG)
    said = await embedded.kubectl("patch", "configmap", "config", f"--type={kind}", f"--patch={patch}")
    assert said == "configmap/config patched\n"
    assert (await content(embedded, "configmap", "config"))["data"] == {"c": "d"}


async def test_a_job_has_no_strategic_patch_as_on_a_cluster(beside: Served, real: Served) -> None:
    said = []
    for server in (beside, real):
        await server.stored(a_job("mnist"))
        done = await server.kubectl_done(
            "patch", "pdj", "mnist", "--type=strategic", '--patch={"spec": {"withGloo": 1}}'
        )
        assert done.returncode == 1
        said.append("unknown format" in done.stderr)
    assert said == [True, True]


async def test_patch_of_a_status(embedded: Served) -> None:
    await embedded.stored(a_pod("pod"))
    patch = '--patch={"status": {"phase": "Running"}}'
    await embedded.kubectl("patch", "pod", "pod", "--subresource=status", patch)
    assert (await content(embedded, "pod", "pod"))["status"]["phase"] == "Running"


async def test_label_and_annotate(embedded: Served) -> None:
    for kind, manifest in (("configmap", CONFIG), ("pdj", a_job("config"))):
        await embedded.stored(manifest)
        await embedded.kubectl("label", kind, "config", "a=b", "c=d")
        await embedded.kubectl("label", kind, "config", "a-", "c=e", "--overwrite")
        await embedded.kubectl("annotate", kind, "config", "note=hello")
        metadata = (await content(embedded, kind, "config"))["metadata"]
        assert metadata["labels"] == {"c": "e"}
        assert metadata["annotations"] == {"note": "hello"}


async def test_edit_is_a_patch_of_what_an_editor_leaves(embedded: Served) -> None:
    await embedded.stored(CONFIG)
    command = [str(embedded.kubectl_program), f"--kubeconfig={embedded.kubeconfig}", "edit", "configmap", "config"]
    environment = {"HOME": str(embedded.home), "PATH": "/usr/bin:/bin", "KUBE_EDITOR": "sed -i /^..a:/s/b$/edited/"}
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert (await content(embedded, "configmap", "config"))["data"] == {"a": "edited"}


async def test_scale_a_job(beside: Served, real: Served) -> None:
    said = []
    for server in (beside, real):
        await server.stored(a_job("mnist"))
        said.append(await server.kubectl("scale", "pdj/mnist", "--replicas=3", "--current-replicas=2"))
        assert (await content(server, "pdj", "mnist"))["spec"]["worker"]["replicas"] == 3
        wrong = await server.kubectl_done("scale", "pdj/mnist", "--replicas=5", "--current-replicas=2")
        said.append(wrong.stderr)
    assert said[:2] == said[2:]


OWNER = an_object("ConfigMap", "owner")


async def owned(server: Served, cascade: str) -> tuple[str, list[str]]:
    """What kubectl says when an owner is deleted, and which children are there in the end."""
    owner = await server.stored(OWNER)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    child = an_object("Secret", "child", stringData={"a": "b"})
    child["metadata"]["ownerReferences"] = [reference | {"blockOwnerDeletion": True}]
    await server.stored(child)
    said = await server.kubectl("delete", "configmap", "owner", f"--cascade={cascade}", "--timeout=100s")
    if cascade != "orphan":
        await gone(server, "secret/child")
    left = (await content(server, "secrets"))["items"]
    return said, [each["metadata"]["name"] for each in left if not each["metadata"].get("ownerReferences")]


async def gone(server: Served, whom: str) -> None:
    await server.kubectl("wait", whom, "--for=delete", f"--timeout={WITHIN_SECONDS:.0f}s")


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_delete_with_each_propagation(beside: Served, real: Served, cascade: str) -> None:
    ours, theirs = await owned(beside, cascade), await owned(real, cascade)
    assert ours == theirs
    assert ours[1] == (["child"] if cascade == "orphan" else [])


async def test_delete_waits_for_a_finalizer(embedded: Served) -> None:
    held = an_object("ConfigMap", "held")
    held["metadata"]["finalizers"] = ["example.com/held"]
    await embedded.stored(held)
    deleting = asyncio.create_task(embedded.kubectl("delete", "configmap", "held", "--timeout=100s"))
    while "deletionTimestamp" not in (await content(embedded, "configmap", "held"))["metadata"]:
        await asyncio.sleep(0.02)
    assert not deleting.done()
    await embedded.send("PATCH", embedded.path(held, name="held"), {"metadata": {"finalizers": None}}, media=MERGE)
    assert await deleting == 'configmap "held" deleted from default namespace\n'


async def test_delete_by_file_label_and_all(embedded: Served) -> None:
    for name in ("one", "two", "three"):
        made = an_object("ConfigMap", name)
        made["metadata"]["labels"] = {"which": name}
        await embedded.stored(made)
    await embedded.kubectl("delete", "configmaps", "-l", "which=one")
    await embedded.kubectl("delete", "--filename=-", stdin=as_text(an_object("ConfigMap", "two")))
    assert (await embedded.kubectl("get", "configmaps", "-o", "name")).split() == ["configmap/three"]
    await embedded.kubectl("delete", "configmaps", "--all", "--wait=false")
    assert await embedded.kubectl("get", "configmaps", "-o", "name") == ""


async def test_delete_a_pod_at_once(embedded: Served) -> None:
    await embedded.stored(a_pod("bound", spec={"nodeName": "local-1"}))
    await embedded.kubectl("delete", "pod", "bound", "--wait=false")
    assert (await content(embedded, "pod", "bound"))["metadata"]["deletionGracePeriodSeconds"] == 30
    assert re.search(r"bound +0/1 +Terminating", await embedded.kubectl("get", "pods"))
    await embedded.kubectl("delete", "pod", "bound", "--force", "--grace-period=0")
    await gone(embedded, "pod/bound")


async def test_wait_for_a_condition_and_for_a_value(embedded: Served) -> None:
    pod = a_pod("pod")
    await embedded.stored(pod)
    waits = [
        asyncio.create_task(embedded.kubectl("wait", "pod/pod", wish, f"--timeout={WITHIN_SECONDS:.0f}s"))
        for wish in ("--for=condition=Ready", "--for=jsonpath={.status.phase}=Running")
    ]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await embedded.send("PATCH", f"{embedded.path(pod, name='pod')}/status", {"status": status}, media=MERGE)
    assert await asyncio.gather(*waits) == ["pod/pod condition met\n"] * 2


async def test_watch_shows_each_change(embedded: Served) -> None:
    await embedded.stored(a_job("mnist"))
    command = [str(embedded.kubectl_program), f"--kubeconfig={embedded.kubeconfig}", "get", "pdj", "--watch"]
    watching = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={"HOME": str(embedded.home)}
    )
    assert watching.stdout
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            lines = [await watching.stdout.readline() for _ in range(2)]
            path = f"{embedded.path(a_job(), name='mnist')}/status"
            await embedded.send("PATCH", path, {"status": {"phase": "Running"}}, media=MERGE)
            lines.append(await watching.stdout.readline())
    finally:
        watching.kill()
        await watching.wait()
    assert [line.split()[:2] for line in lines[::2]] == [[b"NAME", b"STATUS"], [b"mnist", b"Running"]]


async def test_what_is_not_there_is_said_in_a_sentence(embedded: Served) -> None:
    await embedded.stored(a_pod("pod"))
    running = {"status": {"phase": "Running"}}
    await embedded.send("PATCH", f"{embedded.path(a_pod(), name='pod')}/status", running, media=MERGE)
    done = await embedded.kubectl_done("exec", "pod", "--", "true")
    assert done.returncode == 1
    assert "cannot be run inside the containers" in done.stderr
