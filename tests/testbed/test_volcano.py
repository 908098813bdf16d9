"""What Volcano itself does with a gang: the facts that plan/gang.py leans on, each asked of the real scheduler.

Two hollow nodes of 4 CPUs each; a pod of a gang wants 2, so that four of them fill the cluster.
"""

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import Key, Object, Resource
from testbed import volcano_assets
from testbed.hollow import HollowNodes
from testbed.hollow_script import never_starts
from testbed.progress import Progress
from testbed.toolchain import AssetsError
from testbed.volcano import PREEMPTING_CONFIGURATION, Volcano
from testbed.volcano_assets import VERSION, VolcanoPrograms, ensure_volcano
from testbed.watch_until import WatchedObjects, watch_objects
from tests.support.objects import FullObject

GROUP_NAME = "scheduling.k8s.io/group-name"
Spec = dict[str, Any]


PODS = Resource("api/v1", "pods", FullObject)
GROUPS = Resource("apis/scheduling.volcano.sh/v1beta1", "podgroups", FullObject)
PRIORITIES = Resource("apis/scheduling.k8s.io/v1", "priorityclasses", Object, namespaced=False)


class Gangs:
    """PodGroups and bare pods of one namespace, without an operator."""

    def __init__(self, client: Client, nodes: HollowNodes, namespace: str) -> None:
        self.nodes = nodes
        self._client = client
        self._namespace = namespace
        self._pods: WatchedObjects[FullObject]
        self._groups: WatchedObjects[FullObject]

    async def open(self, stack: AsyncExitStack) -> None:
        scope = Scope(self._namespace)
        self._pods = await stack.enter_async_context(watch_objects(self._client, PODS, scope))
        self._groups = await stack.enter_async_context(watch_objects(self._client, GROUPS, scope))

    async def make_group(self, name: str, **spec: Any) -> None:
        await self._create(GROUPS, "scheduling.volcano.sh/v1beta1", "PodGroup", {"name": name}, spec)

    async def make_pods(self, group: str, *numbers: int, **container: Any) -> None:
        container = container or {"resources": {"requests": {"cpu": "2"}}}
        for number in numbers:
            await self.make_pod({"name": f"{group}-{number}", "annotations": {GROUP_NAME: group}}, {}, **container)

    async def make_pod(self, metadata: Spec, pod: Spec, **container: Any) -> None:
        containers = [{"name": "main", "image": "none", **container}]
        spec = {"schedulerName": "volcano", "restartPolicy": "Never", "containers": containers, **pod}
        await self._create(PODS, "v1", "Pod", metadata, spec)

    async def make_priority(self, name: str, value: int) -> None:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await self._client.create(PRIORITIES, {**kind, "value": value})

    async def _create(self, kind: Resource[FullObject], version: str, name: str, metadata: Spec, spec: Spec) -> None:
        metadata = {**metadata, "namespace": self._namespace}
        await self._client.create(kind, {"apiVersion": version, "kind": name, "metadata": metadata, "spec": spec})

    async def change(self, group: str, spec: Spec) -> None:
        await self._client.merge(GROUPS, Key(self._namespace, group), {"spec": spec})

    async def delete_pods(self, *names: str) -> None:
        for name in names:
            await self._client.delete(PODS, Key(self._namespace, name))
        for name in names:
            await self._pods.wait_deleted(name)

    async def group(self, name: str, claim: Callable[[FullObject], bool] = lambda _: True) -> FullObject:
        return await self._groups.until(name, claim)

    async def phase(self, group: str, phase: str) -> FullObject:
        return await self.group(group, lambda each: each.phase == phase)

    async def run(self, *pods: str) -> None:
        for pod in pods:
            await self._pods.until(pod, lambda each: each.phase == "Running")

    async def pod(self, name: str, claim: Callable[[FullObject], bool]) -> FullObject:
        return await self._pods.until(name, claim)

    @property
    def bound(self) -> list[str]:
        return sorted(pod.key.name for pod in self._pods.store if pod.node)

    @property
    def groups(self) -> list[FullObject]:
        return list(self._groups.store)

    async def bound_are(self, count: int) -> None:
        await self._pods.wait_until(lambda: len(self.bound) >= count)

    async def other_group_appears(self) -> FullObject:
        await self._groups.wait_until(lambda: bool(self.groups))
        return self.groups[0]


@pytest.fixture
async def gangs(volcano: Volcano) -> AsyncIterator[Gangs]:
    namespace = await volcano.control_plane.create_namespace("gangs")
    async with (
        Client(volcano.control_plane.connection()) as client,
        HollowNodes(client, count=2, cpu="4") as nodes,
        AsyncExitStack() as stack,
    ):
        gangs = Gangs(client, nodes, namespace)
        await gangs.open(stack)
        yield gangs
        await volcano.control_plane.delete_namespace(namespace)


def names(group: str, count: int) -> list[str]:
    return [f"{group}-{number}" for number in range(count)]


# Gangs


async def test_a_gang_that_is_too_large_is_not_bound_at_all(gangs: Gangs) -> None:
    """Without minResources its pods are looked at, and still none of the four that would have room is bound."""
    await gangs.make_group("large", minMember=5)
    await gangs.make_pods("large", *range(5))
    await gangs.phase("large", "Inqueue")
    for pod in names("large", 5):
        await gangs.pod(pod, said_to_be_unschedulable)
    assert gangs.bound == []


async def test_a_gang_that_fits_is_bound_as_a_whole(gangs: Gangs) -> None:
    await gangs.make_group("fits", minMember=4)
    await gangs.make_pods("fits", *range(3))
    await gangs.group("fits", lambda each: "3 Pending" in unschedulable(each))
    assert gangs.bound == []  # three have room, and the fourth is not there
    await gangs.make_pods("fits", 3)
    await gangs.phase("fits", "Running")
    await gangs.run(*names("fits", 4))


async def test_a_group_is_pending_until_its_resources_seem_free(gangs: Gangs) -> None:
    """Volcano lets in what is at most the whole cluster, pods or no pods."""
    await gangs.make_group("first", minMember=2, minResources={"cpu": "8"})
    await gangs.make_group("too-large", minMember=2, minResources={"cpu": "9"})
    await gangs.phase("first", "Inqueue")
    group = await gangs.group("too-large", lambda each: bool(unschedulable(each)))
    assert group.phase == "Pending"


# The phases, as the operator will see them


async def test_a_group_that_loses_all_pods_is_let_in_again(gangs: Gangs) -> None:
    await gangs.make_group("again", minMember=2, minResources={"cpu": "4"})
    for _ in range(2):
        await gangs.phase("again", "Inqueue")
        await gangs.make_pods("again", 0, 1)
        await gangs.phase("again", "Running")
        await gangs.run("again-0", "again-1")
        await gangs.delete_pods("again-0", "again-1")


async def test_running_group_that_loses_a_pod_is_unknown(gangs: Gangs) -> None:
    """Also in a full cluster: it need not be let in again."""
    await gangs.make_group("full", minMember=4, minResources={"cpu": "8"})
    await gangs.make_pods("full", *range(4))
    await gangs.run(*names("full", 4))
    await gangs.delete_pods("full-1")
    await gangs.phase("full", "Unknown")
    await gangs.make_pods("full", 1)
    await gangs.phase("full", "Running")


async def test_group_losing_a_pending_pod_blocks_itself(gangs: Gangs) -> None:
    """It is Pending again, and its resources are not free: its own bound pods have them. Only ending those helps."""
    gangs.nodes.script("stuck-*", never_starts())
    await gangs.make_group("stuck", minMember=4, minResources={"cpu": "8"})
    await gangs.make_pods("stuck", *range(4))
    await gangs.phase("stuck", "Running")
    await gangs.delete_pods("stuck-1")
    await gangs.phase("stuck", "Pending")
    await gangs.make_pods("stuck", 1)
    await gangs.pod("stuck-1", said_to_be_unschedulable)
    assert gangs.bound == ["stuck-0", "stuck-2", "stuck-3"]
    await gangs.delete_pods("stuck-0", "stuck-2", "stuck-3")
    await gangs.make_pods("stuck", 0, 2, 3)
    await gangs.phase("stuck", "Running")


async def test_group_of_a_missing_queue_has_no_phase(gangs: Gangs) -> None:
    await gangs.make_group("lost", minMember=1, queue="nowhere")
    await gangs.make_group("found", minMember=1)  # without a queue it is the default one's
    await gangs.phase("found", "Inqueue")
    lost = await gangs.group("lost")
    assert lost.status is None
    assert (await gangs.group("found")).spec.get("queue", "") == ""


async def test_a_larger_number_is_taken_for_a_running_gang(gangs: Gangs) -> None:
    await gangs.make_group("grows", minMember=2)
    await gangs.make_pods("grows", 0, 1)
    await gangs.run("grows-0", "grows-1")
    await gangs.change("grows", {"minMember": 4})
    await gangs.phase("grows", "Unknown")
    await gangs.make_pods("grows", 2, 3)
    await gangs.phase("grows", "Running")
    await gangs.change("grows", {"minMember": 1})
    await gangs.delete_pods("grows-2", "grows-3")
    assert (await gangs.group("grows")).phase == "Running"


async def test_where_nobody_queues_every_group_is_let_in_at_once(gangs: Gangs, volcano: Volcano) -> None:
    async with volcano.use_configuration(PREEMPTING_CONFIGURATION):
        await gangs.make_group("large", minMember=5, minResources={"cpu": "10"})
        await gangs.phase("large", "Inqueue")


async def test_a_gang_of_a_higher_priority_takes_what_it_needs(gangs: Gangs, volcano: Volcano) -> None:
    """Only the pods that are in its way: what is left of the other is up to whoever made that."""
    await gangs.make_priority("urgent", 1000)
    async with volcano.use_configuration(PREEMPTING_CONFIGURATION):
        await gangs.make_group("low", minMember=4)
        await gangs.make_pods("low", *range(4))
        await gangs.run(*names("low", 4))
        await gangs.make_group("high", minMember=2, priorityClassName="urgent")
        await gangs.make_pods("high", 0, 1)
        await gangs.run("high-0", "high-1")
        assert len(gangs.bound) == 4
        await gangs.phase("low", "Unknown")


# Pods that are nobody's, or want nothing


async def test_a_pod_that_names_no_group_gets_one_of_its_own(gangs: Gangs) -> None:
    """From the controller manager: so a pod of a gang must have the annotation when it is made."""
    await gangs.make_pod({"name": "alone"}, {})
    made = await gangs.other_group_appears()
    assert made.key.name.startswith("podgroup-")
    pod = await gangs.pod("alone", lambda each: bool(each.node))
    assert pod.metadata.annotations[GROUP_NAME] == made.key.name


async def test_pods_that_ask_for_nothing_are_bound_one_by_one(gangs: Gangs) -> None:
    """To Volcano they are always ready: a gang of them starts by half where one of them finds no node."""
    await gangs.make_group("idle", minMember=3)
    last = {"name": "idle-2", "annotations": {GROUP_NAME: "idle", "volcano.sh/task-priority": "-1"}}
    await gangs.make_pod(last, {"nodeSelector": {"no": "node"}})
    await gangs.make_pods("idle", 0, 1, resources={})
    await gangs.bound_are(2)
    await gangs.pod("idle-2", said_to_be_unschedulable)
    assert gangs.bound == ["idle-0", "idle-1"]


def unschedulable(group: FullObject) -> str:
    """Why, in Volcano's words; the condition stays when it is no longer so."""
    conditions = (group.status or {}).get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["type"] == "Unschedulable"), "")


def said_to_be_unschedulable(pod: FullObject) -> bool:
    conditions = pod.status.get("conditions", [])
    return any((each["type"], each["status"]) == ("PodScheduled", "False") for each in conditions)


# The programs themselves


def test_programs_have_the_pinned_version(volcano_build: VolcanoPrograms) -> None:
    for program in (volcano_build.scheduler, volcano_build.controller_manager):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        assert f"Version: {VERSION}\n" in said
    assert "scheduling.volcano.sh_podgroups.yaml" in [path.name for path in volcano_build.definitions]


def test_module_with_another_hash_is_not_built(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho \'{"Dir": "/nowhere", "Sum": "h1:other="}\'\n')
    go.chmod(0o755)
    with pytest.raises(AssetsError, match=r"has the hash h1:other= instead of h1:\+GzQinGg"):
        volcano_assets.MODULE.download(go, tmp_path)


def test_download_error_quotes_go(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho \'{"Error": "no such host"}\'\nexit 1\n')
    go.chmod(0o755)
    with pytest.raises(AssetsError, match=r"cannot download volcano.sh/volcano v1.10.0: no such host\. To fix this"):
        volcano_assets.MODULE.download(go, tmp_path)


def test_it_is_built_once_under_a_name_of_its_own(tmp_path: Path) -> None:
    def two_files(folder: Path, progress: Progress) -> None:
        (folder / "vc-scheduler").touch()
        (folder / "vc-controller-manager").touch()

    def never(folder: Path, progress: Progress) -> None:
        raise AssertionError("unexpected build")

    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    built = ensure_volcano(environment, two_files)
    assert ensure_volcano(environment, never) == built
    assert built.folder.name == f"volcano-{volcano_assets.build_key()}"
