"""Hollow nodes serve ten thousand pods: the API server is the limit, and no pod is lost.

The test sets nodeName itself: the scheduler would need two more writes for each pod.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.pod import PODS
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.watch_until import watch_objects
from tests.conftest import print_line

COUNT = 10_000
NODES = 10
WAIT_TIMEOUT_SECONDS = 240.0


Timed = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def timed(pytestconfig: pytest.Config) -> Timed:
    """Prints how long a block took: the limits of this testbed are part of what a bench measures."""

    @contextmanager
    def timed(title: str) -> Iterator[None]:
        wall, cpu = time.monotonic(), time.process_time()
        yield
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        print_line(pytestconfig, f"{title}: {wall:.1f} s, {COUNT / wall:.0f} pods/s; {cpu:.1f} s CPU in this process")

    return timed


def make_pod(namespace: str, index: int, node: str) -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{number}", "value": "some value"} for number in range(10)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"worker-{index}", "namespace": namespace},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "env": env}],
        },
    }


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_ten_thousand_pods_run_and_are_deleted(control_plane: ControlPlane, namespace: str, timed: Timed) -> None:
    async with (
        Client(control_plane.connection()) as client,
        Client(control_plane.connection("tester-1")) as kubelet,
        HollowNodes(kubelet, count=NODES, pods=COUNT) as nodes,
        watch_objects(client, PODS, Scope(namespace)) as pods,
    ):
        by_phase = pods.store.index(lambda pod: (pod.status.phase,))
        with timed("created and running"):
            with timed("created"):
                await asyncio.gather(
                    *(
                        client.create(PODS, make_pod(namespace, index, nodes[index % NODES].name))
                        for index in range(COUNT)
                    )
                )
            await pods.wait_until(lambda: len(by_phase["Running"]) == COUNT, timeout_seconds=WAIT_TIMEOUT_SECONDS)
        assert len({pod.status.pod_ip for pod in pods.store}) == COUNT
        on_server = {pod.key: pod for pod in await client.list_all(PODS, Scope(namespace))}
        await pods.wait_until(
            lambda: {pod.key: pod for pod in pods.store} == on_server, timeout_seconds=WAIT_TIMEOUT_SECONDS
        )
        with timed("deleted and gone"):
            await asyncio.gather(*(client.delete(PODS, Key(namespace, f"worker-{index}")) for index in range(COUNT)))
            await pods.wait_until(lambda: not len(pods.store), timeout_seconds=WAIT_TIMEOUT_SECONDS)
        assert not await client.list_all(PODS, Scope(namespace))
