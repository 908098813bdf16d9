"""A namespace that enforces `restricted`, and people with Kubernetes' own roles."""

import asyncio
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.manager import DRAIN_SECONDS, LAST_EVENTS_SECONDS
from testbed.control_plane import ControlPlane
from testbed.followed import followed
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits
from testbed.request import RequestError
from tests.install.installed import (
    CLUSTER_WIDE,
    CRD,
    MANAGER,
    OPERATOR,
    arguments_of,
    kubeconfig_of_account,
    manager_of,
    objects,
)
from tests.stories.jobs import a_job, a_template, with_template
from tests.stories.stage import WHOLE_JOBS

ENFORCE = "pod-security.kubernetes.io/enforce=restricted"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.timeout(600)
async def test_in_a_restricted_namespace_the_operator_runs_and_so_does_what_it_makes(
    plane: ControlPlane, tmp_path: Path
) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(OPERATOR))
    await plane.kubectl("label", "namespace", "paddle-system", ENFORCE)
    await plane.kubectl("-n", "paddle-system", "rollout", "restart", f"deployment/{MANAGER[2]}")
    async with Client(plane.connection()) as client, HollowNodes(client, count=2) as nodes:
        nodes.script("*-worker-*", exits(0, after=0.5))
        await plane.kubectl("-n", "paddle-system", "rollout", "status", f"deployment/{MANAGER[2]}", "--timeout=240s")
        arguments = arguments_of(objects(OPERATOR.read_text())[MANAGER])
        async with (
            followed(client, WHOLE_JOBS, Scope("paddle-system")) as jobs,
            manager_of(await kubeconfig_of_account(plane, tmp_path), *arguments),
        ):
            for name, intranet in (("by-address", "PodIP"), ("by-name", "Service")):
                job = a_job(name, ps=1, workers=2, intranet=intranet)
                job = with_template(job, a_template(securityContext=RESTRICTED))
                job["metadata"]["namespace"] = "paddle-system"
                await client.create(WHOLE_JOBS, job)
            for name in ("by-address", "by-name"):
                await jobs.until(name, lambda job: job.phase == "Completed")


def test_kubelet_gives_the_operator_the_time_that_it_takes_to_end_in_peace() -> None:
    """Killed before that, it would hold the lease, and the other replica would wait until it runs out."""
    pod = objects(OPERATOR.read_text())[MANAGER]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_SECONDS + LAST_EVENTS_SECONDS


async def test_who_may_edit_a_namespace_may_edit_its_jobs_and_who_may_view_it_may_see_them(plane: ControlPlane) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(CLUSTER_WIDE))
    await plane.kubectl("create", "namespace", "team")
    for person, role in (("ada", "edit"), ("bob", "view")):
        await plane.kubectl("-n", "team", "create", "rolebinding", person, f"--clusterrole={role}", f"--user={person}")

    async def can(person: str, verb: str, what: str, part: str = "") -> bool:
        asked = (verb, what, f"--subresource={part}", f"--as={person}")
        try:
            said = await plane.kubectl("-n", "team", "auth", "can-i", *asked)
        except RequestError:  # its exit code says no
            return False
        return said.strip() == "yes"

    async with asyncio.timeout(120):
        while not await can("bob", "list", "paddlejobs"):  # the controller manager adds our roles to its own
            await asyncio.sleep(0.2)
        while not await can("ada", "create", "paddlejobs"):
            await asyncio.sleep(0.2)
    assert await can("ada", "delete", "paddlejobs")
    assert await can("ada", "patch", "paddlejobs", "scale")
    assert not await can("ada", "patch", "paddlejobs", "status")
    assert not await can("bob", "create", "paddlejobs")
    assert not await can("bob", "patch", "paddlejobs", "scale")
