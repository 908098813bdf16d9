"""What a real API server makes of the definition."""

import asyncio
import json
import re
from typing import Any

import msgspec
import pytest

from paddle_operator.api.crd import crd, crd_v1beta1, custom_resource_definition
from paddle_operator.api.paddlejob import PADDLE_JOB, PaddleJobStatus, Reference, RoleStatus
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import Invalid, NotFound
from paddle_operator.kube.objects import Key, Object, Resource
from testbed.control_plane import ControlPlane
from testbed.request import RequestError
from tests.api.jobs import PADDLE_JOBS, Written, a_role, make_job, make_template
from tests.api.wrong_jobs import CASES, Case
from tools.pod_template_schema import SCHEMA_FILE, fetch_schema

DEFINITIONS = Resource("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", Object, namespaced=False)
SERVED_WITHIN_SECONDS = 100.0


async def apply(control_plane: ControlPlane, manifest: Written) -> str:
    return await control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=json.dumps(manifest))


def with_container(**fields: object) -> Written:
    template = make_template()
    template["spec"]["containers"][0] |= fields
    return make_job({"worker": a_role(template=template)})


async def test_the_schema_of_a_template_is_what_kubernetes_has_today(control_plane: ControlPlane) -> None:
    assert SCHEMA_FILE.read_text() == await fetch_schema(control_plane), "stale: python -m tools.pod_template_schema"


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (with_container(imagePulPolicy="Always"), "spec.worker.template.spec.containers[0].imagePulPolicy"),
        (with_container(env=[{"nam": "A"}]), "spec.worker.template.spec.containers[0].env[0].nam"),
        (make_job({"worker": a_role(replica=1)}), "spec.worker.replica"),
        (make_job({"worker": a_role(), "cleanPodPolice": "Never"}), "spec.cleanPodPolice"),
        (
            make_job({"worker": a_role(template=make_template() | {"metadata": {"label": {"a": "b"}}})}),
            "spec.worker.template.metadata.label",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_typo_is_refused_with_its_path(
    control_plane: ControlPlane, paddlejob_crd: None, manifest: Written, path: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(f'unknown field "{path}"')):
        await apply(control_plane, manifest)


@pytest.mark.parametrize("quantity", [1, 0.5, "500m", "1Gi", "1e3", "+.5"])
async def test_a_quantity_may_be_all_that_it_may_be_in_a_pod(
    control_plane: ControlPlane, paddlejob_crd: None, quantity: object
) -> None:
    assert await apply(control_plane, with_container(resources={"limits": {"cpu": quantity}}))


@pytest.mark.parametrize("quantity", ["half", "", "1 Gi", True, {}, [], {"a": 1}, [1]], ids=str)
async def test_a_quantity_may_be_nothing_else(
    control_plane: ControlPlane, paddlejob_crd: None, quantity: object
) -> None:
    with pytest.raises(RequestError, match=r"resources\.limits\.cpu"):
        await apply(control_plane, with_container(resources={"limits": {"cpu": quantity}}))


async def test_what_means_nothing_in_a_template_is_let_pass(control_plane: ControlPlane, paddlejob_crd: None) -> None:
    """A field without a value, and what Go programs write into the metadata of a template."""
    template = make_template() | {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}}
    template["spec"] |= {"nodeSelector": None, "restartPolicy": None, "volumes": None}
    assert await apply(control_plane, make_job({"worker": a_role(template=template), "ps": None, "intranet": None}))


async def test_kubectl_scale_changes_the_workers(
    control_plane: ControlPlane, paddlejob_crd: None, client: Client, namespace: str
) -> None:
    key = Key(namespace, "mnist")
    await client.create(PADDLE_JOBS, make_job({"worker": a_role(2)}, *reversed(key)))
    await control_plane.kubectl("scale", "pdj/mnist", "--replicas=3", f"--namespace={namespace}")
    replicas = ("get", "pdj/mnist", f"--namespace={namespace}", "--output=jsonpath={.spec.worker.replicas}")
    assert await control_plane.kubectl(*replicas) == "3"
    with pytest.raises(RequestError, match=r"spec\.worker\.replicas is 0, but must be from 1 to 10000"):
        await control_plane.kubectl("scale", "pdj/mnist", "--replicas=0", f"--namespace={namespace}")


async def test_kubectl_get_shows_phase_ready_and_age(
    control_plane: ControlPlane, paddlejob_crd: None, client: Client, namespace: str
) -> None:
    key = Key(namespace, "mnist")
    await client.create(PADDLE_JOBS, make_job({"worker": a_role(2)}, *reversed(key)))
    status: Any = msgspec.to_builtins(
        PaddleJobStatus(
            phase="Running",
            mode="Collective",
            ready="2/2",
            worker=RoleStatus(replicas=2, running=2, refs=(Reference("mnist-worker-0", namespace, "1-2-3"),)),
            selector="a=b",
        )
    )
    await client.merge_status(PADDLE_JOBS, key, status)
    assert await control_plane.kubectl("get", "pdj", "mnist", f"--namespace={namespace}", "--output=jsonpath={.status}")
    table = await control_plane.kubectl("get", "pdj", f"--namespace={namespace}")
    head, row = (line.split() for line in table.splitlines())
    assert head == ["NAME", "STATUS", "MODE", "READY", "STARTED", "AGE"]
    assert row[:4] == ["mnist", "Running", "Collective", "2/2"]
    scale = await control_plane.kubectl("get", "pdj", "mnist", f"--namespace={namespace}", "--subresource=scale")
    assert scale.splitlines()[1].split()[:3] == ["mnist", "2", "2"]
    listed = await control_plane.kubectl("get", "all", f"--namespace={namespace}")
    assert "paddlejob.batch.paddlepaddle.org/mnist" in listed


async def test_v1beta1_schema_is_structural(client: Client) -> None:
    """It cannot be asked about the old definition, but about the schema in it."""
    old = crd_v1beta1(PADDLE_JOB)["spec"]
    version = {"name": "v1", "served": True, "storage": True, "schema": old["validation"]}
    manifest = custom_resource_definition(PADDLE_JOB, "v1", {"versions": [version]})
    manifest["metadata"]["name"] = "paddlejobs.old.example.org"
    manifest["spec"]["group"] = "old.example.org"
    await client.create(DEFINITIONS, manifest, dry_run=True)


async def test_job_stored_before_rules_stays_writable(client: Client, namespace: str) -> None:
    """All wrong jobs are stored under a definition without rules, which is then replaced by ours.

    All but those with a wrong type, which no definition of a PaddleJob ever let pass.
    """
    unreadable = re.compile("must be of type")
    cases = [case for case in CASES if not unreadable.search(case.server)]
    group = f"{namespace}.example.org"
    jobs = Resource(f"apis/{group}/v1", "paddlejobs", Object)
    await client.create(DEFINITIONS, without_rules(of_group(group)))
    await until_dry_run(client, jobs, accepted=True)
    keys = [Key(namespace, f"{case.wrong_name}{number}") for number, case in enumerate(cases)]
    for key, case in zip(keys, cases, strict=True):
        stored = make_job(case.wrong, key.name, namespace) | {"apiVersion": f"{group}/v1"}
        stored["metadata"]["finalizers"] = ["example.org/held"]
        await client.create(jobs, stored)
    change = {"spec": of_group(group)["spec"]}
    await client.merge(DEFINITIONS, Key("", f"paddlejobs.{group}"), change)
    await until_dry_run(client, jobs, accepted=False)
    for key, case in zip(keys, cases, strict=True):
        await client.merge_status(jobs, key, {"phase": "Failed"})
        await client.merge(jobs, key, mended(case) | {"metadata": {"labels": {"a": "b"}}})
        await client.merge(jobs, key, {"metadata": {"finalizers": None}})
        await client.delete(jobs, key)
    assert await client.list_all(jobs) == []
    await client.delete(DEFINITIONS, Key("", f"paddlejobs.{group}"))


def mended(case: Case) -> Written:
    """Fewer than no workers are the one thing that must be mended first: the scale subresource looks at them always."""
    replicas = case.wrong.get("worker", {}).get("replicas", 0)
    return {"spec": {"worker": {"replicas": 1}}} if replicas < 0 else {}


def of_group(group: str) -> Written:
    """Our definition under another name, so that the one which the other tests use stays."""
    manifest = crd(PADDLE_JOB)
    manifest["metadata"]["name"] = f"paddlejobs.{group}"
    manifest["spec"]["group"] = group
    manifest["spec"]["names"] = manifest["spec"]["names"] | {"shortNames": [], "categories": []}
    return manifest


def without_rules(manifest: Written) -> Written:
    version = manifest["spec"]["versions"][0]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    lax = version | {"schema": {"openAPIV3Schema": anything}, "subresources": {"status": {}}}
    return manifest | {"spec": manifest["spec"] | {"versions": [lax]}}


async def until_dry_run(client: Client, jobs: Resource[Object], *, accepted: bool) -> None:
    """Wait until the API server has the definition in effect: it accepts a job without roles, or it does not."""
    empty = make_job({}) | {"apiVersion": jobs.prefix.removeprefix("apis/")}
    async with asyncio.timeout(SERVED_WITHIN_SECONDS):
        while await accepts(client, jobs, empty) is not accepted:
            await asyncio.sleep(0.05)


async def accepts(client: Client, jobs: Resource[Object], manifest: Written) -> bool | None:
    """None where the kind is not served yet."""
    try:
        await client.create(jobs, manifest, dry_run=True)
    except Invalid:
        return False
    except NotFound:
        return None
    return True
