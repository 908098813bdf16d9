"""Objects that were stored before the CRD had rules: each says what is wrong with it, and nobody else suffers.

These are the defects 1, 2, 5 and 7 of go-operator.md, section 9: each made the Go operator crash or hang.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.embedded.custom_kind import broken_rules
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import Invalid
from paddle_operator.kube.objects import Key, Object, Resource
from testbed.assets import Binaries
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.volcano import is_served, wait_until
from tests.stories.go_operator import FINALIZER
from tests.stories.harness import FULL_JOBS, ClusterHarness
from tests.stories.jobs import Job, make_job

CRD = Path(__file__).parent.parent.parent / "deploy/v1/crd.yaml"
CRDS = Resource("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", Object, namespaced=False)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
WITHOUT_RULES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "paddlejobs.batch.paddlepaddle.org"},
    "spec": {
        "group": "batch.paddlepaddle.org",
        "names": {"kind": "PaddleJob", "plural": "paddlejobs", "listKind": "PaddleJobList", "singular": "paddlejob"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": ANYTHING},
                "subresources": {"status": {}},
            }
        ],
    },
}


def without(job: Job, role: str, *fields: str) -> Job:
    part = {field: value for field, value in job["spec"][role].items() if field not in fields}
    return job | {"spec": job["spec"] | {role: part}}


def with_replicas(job: Job, role: str, replicas: int) -> Job:
    return job | {"spec": job["spec"] | {role: job["spec"][role] | {"replicas": replicas}}}


NO_CONTAINERS = make_job("no-containers", workers=2)
NO_CONTAINERS["spec"]["worker"]["template"] = {"spec": {"containers": []}}

BROKEN: dict[str, tuple[Job, str]] = {
    "1, no template": (without(make_job("no-template"), "worker", "template"), "spec.worker.template is not set"),
    "1, no containers": (NO_CONTAINERS, "spec.worker.template.spec.containers is empty"),
    "2, elastic without workers": (
        make_job("elastic", ps=1, workers=0, elastic=1),
        "spec.elastic is 1, but only workers can be elastic: add spec.worker, or remove spec.elastic",
    ),
    "5, gloo without servers": (
        with_replicas(make_job("gloo", ps=1, withGloo=1), "ps", 0),
        "spec.ps.replicas is 0, but must be from 1 to 10000: for none, remove spec.ps",
    ),
    "7, no workers": (
        with_replicas(make_job("none", ps=1), "worker", 0),
        "spec.worker.replicas is 0, but must be from 1 to 10000: for none, remove spec.worker",
    ),
    "7, no heter": (
        with_replicas(make_job("cold", ps=1, heter=1), "heter", 0),
        "spec.heter.replicas is 0, but must be from 1 to 10000: for none, remove spec.heter",
    ),
    "no roles": (make_job("empty", workers=0), "spec is without a role"),
    "a policy of nobody": (make_job("nerver", cleanPodPolicy="Nerver"), 'spec.cleanPodPolicy is "Nerver"'),
}


@pytest.fixture(scope="module")
def lenient_control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """One of the module's own: the others' PaddleJobs have rules."""
    with ControlPlane.start(control_plane_binaries) as started:
        yield started


@pytest.fixture
async def stage_of_before(lenient_control_plane: ControlPlane) -> AsyncIterator[ClusterHarness]:
    """The jobs of above are stored, and the CRD has its rules now; the operator is still away."""
    control_plane = lenient_control_plane
    namespace = await control_plane.create_namespace("before")
    async with Client(control_plane.connection()) as client:
        await client.create(CRDS, WITHOUT_RULES)
        served = partial(is_served, control_plane, "/apis/batch.paddlepaddle.org/v1/paddlejobs")
        await asyncio.to_thread(wait_until, served, "PaddleJobs are not served")
        for job, _ in BROKEN.values():
            metadata = job["metadata"] | {"namespace": namespace, "finalizers": [FINALIZER]}
            await client.create(FULL_JOBS, job | {"metadata": metadata})
        await control_plane.kubectl("apply", f"--filename={CRD}")
        async with (
            HollowNodes(client, count=2) as nodes,
            ClusterHarness(control_plane, client, nodes, namespace).open() as harness,
        ):
            yield harness


async def test_invalid_stored_jobs_say_what_is_wrong(stage_of_before: ClusterHarness) -> None:
    harness = stage_of_before
    async with harness.run_operator() as operator:
        for job, problem in BROKEN.values():
            name = job["metadata"]["name"]
            seen = await harness.wait_job(name, lambda job: bool(job.status and job.status.get("conditions")))
            accepted = seen.condition("Accepted")
            assert (accepted["status"], accepted["reason"]) == ("False", "SpecInvalid")
            assert problem in accepted["message"]
            assert problem in (await harness.wait_single_event(name, "SpecInvalid")).note
        await harness.submit(make_job("sound", ps=1, workers=1))
        await harness.wait_phase("sound", "Running")
        assert {manifest["metadata"]["name"].rpartition("-")[0] for manifest in operator.created} <= {
            "sound-ps",
            "sound-worker",
            "",
        }
        await left_alone_where_it_does_not_change(harness)
        await mended(harness)
    await deleted_without_an_operator(harness)


async def left_alone_where_it_does_not_change(harness: ClusterHarness) -> None:
    """By both API servers: who has a wrong number from before can change everything else."""
    key = Key(harness.namespace, "none")
    before = await harness.client.get_manifest(FULL_JOBS, key)
    await harness.patch_spec("none", {"cleanPodPolicy": "Never"})
    after = await harness.client.get_manifest(FULL_JOBS, key)
    assert broken_rules(PADDLE_JOB, dict(after), dict(before)) == []
    worse = dict(after) | {"spec": after["spec"] | {"worker": after["spec"]["worker"] | {"replicas": -1}}}
    with pytest.raises(Invalid) as refused:
        await harness.patch_spec("none", {"worker": {"replicas": -1}})
    (ours,) = broken_rules(PADDLE_JOB, worse, dict(after))
    assert ours.message in [cause.message for cause in refused.value.status.details.causes]  # type: ignore[union-attr]


async def mended(harness: ClusterHarness) -> None:
    await harness.patch_spec("nerver", {"cleanPodPolicy": "Never"})
    job = await harness.wait_phase("nerver", "Running")
    assert job.condition("Accepted")["status"] == "True"


async def deleted_without_an_operator(harness: ClusterHarness) -> None:
    for job, _ in BROKEN.values():
        await harness.client.delete(FULL_JOBS, Key(harness.namespace, job["metadata"]["name"]))
        await harness.wait_deleted(job["metadata"]["name"])
