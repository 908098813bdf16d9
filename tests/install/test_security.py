"""Pod security `restricted`, secrets in output, disruption budgets, and Kubernetes' own user roles."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.errors import TooManyRequests
from paddle_operator.kube.manager import DRAIN_SECONDS, FLUSH_SECONDS
from paddle_operator.kube.objects import PODS, Key
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits
from testbed.ports import LOOPBACK
from testbed.request import RequestError
from testbed.watch_until import watch_objects
from tests.install.installation import (
    CLUSTER_WIDE,
    CRD,
    MANAGER,
    OPERATOR,
    manager_arguments,
    parse_objects,
    run_manager,
    service_account_kubeconfig,
)
from tests.stories.harness import FULL_JOBS
from tests.stories.jobs import make_job, make_template, with_template

ENFORCE = "pod-security.kubernetes.io/enforce=restricted"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.timeout(600)
async def test_restricted_pod_security_allows_operator_and_jobs(plane: ControlPlane, tmp_path: Path) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(OPERATOR))
    await plane.kubectl("label", "namespace", "paddle-system", ENFORCE)
    await plane.kubectl("-n", "paddle-system", "rollout", "restart", f"deployment/{MANAGER[2]}")
    async with Client(plane.connection()) as client, HollowNodes(client, count=2) as nodes:
        nodes.script("*-worker-*", exits(0, after=0.5))
        await plane.kubectl("-n", "paddle-system", "rollout", "status", f"deployment/{MANAGER[2]}", "--timeout=240s")
        arguments = manager_arguments(parse_objects(OPERATOR.read_text())[MANAGER])
        async with (
            watch_objects(client, FULL_JOBS, Scope("paddle-system")) as jobs,
            run_manager(await service_account_kubeconfig(plane, tmp_path), *arguments),
        ):
            for name, intranet in (("by-address", "PodIP"), ("by-name", "Service")):
                job = make_job(name, ps=1, workers=2, intranet=intranet)
                job = with_template(job, make_template(securityContext=RESTRICTED))
                job["metadata"]["namespace"] = "paddle-system"
                await client.create(FULL_JOBS, job)
            for name in ("by-address", "by-name"):
                await jobs.until(name, lambda job: job.phase == "Completed")


@pytest.mark.timeout(180)
async def test_no_secret_in_logs_events_status_or_metrics(plane: ControlPlane, tmp_path: Path) -> None:
    """Not even at log level debug and in the message of a refused pod."""
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(OPERATOR))
    await plane.kubectl("label", "namespace", "paddle-system", ENFORCE)
    kubeconfig = await service_account_kubeconfig(plane, tmp_path)
    (account_token,) = (user["user"]["token"] for user in json.loads(kubeconfig.read_text())["users"])
    (tmp_path / "token").write_text("metrics-secret")
    password = {"env": [{"name": "PASSWORD", "value": "template-secret"}]}
    templates = {"runs": make_template(securityContext=RESTRICTED, **password), "refused": make_template(**password)}
    options = ["--log-level=debug", f"--metrics-token-file={tmp_path / 'token'}"]
    async with Client(plane.connection()) as client, HollowNodes(client, count=2):
        with (tmp_path / "log").open("wb") as log:
            async with (
                watch_objects(client, FULL_JOBS, Scope("paddle-system")) as jobs,
                run_manager(kubeconfig, "--namespace=paddle-system", *options, log=log) as port,
            ):
                for name, template in templates.items():
                    job = with_template(make_job(name, workers=2), template)
                    job["metadata"]["namespace"] = "paddle-system"
                    await client.create(FULL_JOBS, job)
                await jobs.until("runs", lambda job: job.phase == "Running", timeout_seconds=60)
                refused = await jobs.until("refused", lambda job: "violates PodSecurity" in str(job.status))
                header = {"Authorization": "Bearer metrics-secret"}
                url = f"http://{LOOPBACK}:{port}/metrics"
                async with aiohttp.ClientSession(headers=header) as session, session.get(url) as response:
                    metrics = await response.text()
    events = await plane.kubectl("-n", "paddle-system", "get", "events", "-o", "yaml")
    log_text = (tmp_path / "log").read_text()
    assert "/api/v1/namespaces/paddle-system/pods" in log_text, "requests are not logged at level debug"
    assert "violates PodSecurity" in events
    assert 'paddlejobs{phase="Running"} 1.0' in metrics
    for secret in (account_token, "metrics-secret", "template-secret"):
        for text in (log_text, events, str(refused.status), metrics):
            assert secret not in text


@pytest.mark.timeout(180)
async def test_drain_respects_the_disruption_budget(plane: ControlPlane) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(OPERATOR))
    manager, budget = f"deployment/{MANAGER[2]}", f"poddisruptionbudget/{MANAGER[2]}"

    async def kubectl(*arguments: str) -> None:
        await plane.kubectl("-n", "paddle-system", *arguments)

    async def wait_replicas() -> list[Key]:
        """Wait until the rollout is complete and the budget has counted the pods."""
        await kubectl("rollout", "status", manager, "--timeout=60s")
        await kubectl("wait", budget, "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=60s")
        return [
            pod.key
            for pod in await client.list_all(PODS, Scope("paddle-system"))
            if not pod.metadata.deletion_timestamp
        ]

    async with Client(plane.connection()) as client, HollowNodes(client, count=2):
        (only,) = await wait_replicas()
        await client.evict(only)
        await kubectl("scale", manager, "--replicas=2")
        await kubectl("wait", manager, "--for=jsonpath={.status.readyReplicas}=2", "--timeout=60s")
        first, second = await wait_replicas()
        nodes = (await plane.kubectl("get", "nodes", "-o", "name")).split()
        await kubectl("cordon", *nodes)  # so that the first pod cannot be replaced
        await client.evict(first)
        with pytest.raises(TooManyRequests, match="disruption budget"):
            await client.evict(second)


def test_grace_period_covers_a_clean_shutdown() -> None:
    """Killed earlier, it would keep the lease, and the other replica would wait until the lease expires."""
    pod = parse_objects(OPERATOR.read_text())[MANAGER]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_SECONDS + FLUSH_SECONDS


async def test_edit_and_view_roles_aggregate_paddlejobs(plane: ControlPlane) -> None:
    await plane.kubectl("apply", "-f", str(CRD), "-f", str(CLUSTER_WIDE))
    await plane.kubectl("create", "namespace", "team")
    for user, role in (("ada", "edit"), ("bob", "view")):
        await plane.kubectl("-n", "team", "create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")

    async def can(user: str, verb: str, resource: str, subresource: str = "") -> bool:
        query = (verb, resource, f"--subresource={subresource}", f"--as={user}")
        try:
            answer = await plane.kubectl("-n", "team", "auth", "can-i", *query)
        except RequestError:  # exit code 1 means no
            return False
        return answer.strip() == "yes"

    async with asyncio.timeout(120):
        while not await can("bob", "list", "paddlejobs"):  # the controller manager aggregates our roles
            await asyncio.sleep(0.2)
        while not await can("ada", "create", "paddlejobs"):
            await asyncio.sleep(0.2)
    assert await can("ada", "delete", "paddlejobs")
    assert await can("ada", "patch", "paddlejobs", "scale")
    assert not await can("ada", "patch", "paddlejobs", "status")
    assert not await can("bob", "create", "paddlejobs")
    assert not await can("bob", "patch", "paddlejobs", "scale")
