"""Tables of every built-in kind and pod state compared with a real API server."""

import pytest

from tests.local.served.objects import VOLUME_AND_CLAIM, in_namespace, make_job, make_object, make_pod
from tests.local.served.servers import MERGE, TABLE, KubectlServer, Manifest

LONG_AGO = "2026-01-02T03:04:05Z"


def container(name: str = "main", *, ready: bool = False, restarts: int = 0, **state: Manifest) -> Manifest:
    return {
        "name": name,
        "ready": ready,
        "restartCount": restarts,
        "image": "i",
        "imageID": "",
        "state": state,
        "started": ready,
    }


def terminated(code: int, reason: str = "", **more: int) -> Manifest:
    found: Manifest = {"exitCode": code, "startedAt": LONG_AGO, "finishedAt": LONG_AGO} | more
    return found | ({"reason": reason} if reason else {})


RUNNING: Manifest = {"startedAt": LONG_AGO}
READY = [{"type": "Ready", "status": "True"}]
INITIALIZED = [{"type": "Initialized", "status": "True"}]
WITH_INIT = {"initContainers": [{"name": "first", "image": "i"}, {"name": "second", "image": "i"}]}
WITH_SIDECAR = {"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}]}
TWO = {"containers": [{"name": "main", "image": "i"}, {"name": "other", "image": "i"}]}

GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]

PODS: dict[str, tuple[Manifest, Manifest, str]] = {
    "pending": ({}, {"phase": "Pending"}, "Pending"),
    "creating": (
        {},
        {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ContainerCreating"})]},
        "ContainerCreating",
    ),
    "waits for its config": (
        {},
        {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "CreateContainerConfigError"})]},
        "CreateContainerConfigError",
    ),
    "running": (
        {},
        {"phase": "Running", "conditions": READY, "containerStatuses": [container(ready=True, running=RUNNING)]},
        "Running",
    ),
    "not ready": ({}, {"phase": "Running", "containerStatuses": [container(running=RUNNING)]}, "Running"),
    "one of two ended": (
        TWO,
        {
            "phase": "Running",
            "containerStatuses": [
                container(terminated=terminated(0, "Completed")),
                container("other", ready=True, running=RUNNING),
            ],
        },
        "NotReady",
    ),
    "one of two failed": (
        TWO,
        {
            "phase": "Running",
            "containerStatuses": [
                container(terminated=terminated(0, "Completed")),
                container("other", terminated=terminated(3)),
            ],
        },
        "ExitCode:3",
    ),
    "crashing": (
        {},
        {
            "phase": "Running",
            "containerStatuses": [
                container(restarts=3, waiting={"reason": "CrashLoopBackOff"})
                | {"lastState": {"terminated": terminated(1, "Error")}}
            ],
        },
        "CrashLoopBackOff",
    ),
    "completed": (
        {"restartPolicy": "Never"},
        {"phase": "Succeeded", "containerStatuses": [container(terminated=terminated(0, "Completed"))]},
        "Completed",
    ),
    "error": (
        {"restartPolicy": "Never"},
        {"phase": "Failed", "containerStatuses": [container(terminated=terminated(1, "Error"))]},
        "Error",
    ),
    "by a signal": (
        {"restartPolicy": "Never"},
        {"phase": "Failed", "containerStatuses": [container(terminated=terminated(137, signal=9))]},
        "Signal:9",
    ),
    "past its deadline": (
        {"restartPolicy": "Never"},
        {"phase": "Failed", "reason": "DeadlineExceeded"},
        "DeadlineExceeded",
    ),
    "init": (
        WITH_INIT,
        {
            "phase": "Pending",
            "initContainerStatuses": [
                container("first", terminated=terminated(0, "Completed")),
                container("second", running=RUNNING),
            ],
            "containerStatuses": [container(waiting={"reason": "PodInitializing"})],
        },
        "Init:1/2",
    ),
    "init failed": (
        WITH_INIT | {"restartPolicy": "Never"},
        {"phase": "Failed", "initContainerStatuses": [container("first", terminated=terminated(1, "Error"))]},
        "Init:Error",
    ),
    "init crashing": (
        WITH_INIT,
        {
            "phase": "Pending",
            "initContainerStatuses": [container("first", restarts=2, waiting={"reason": "CrashLoopBackOff"})],
        },
        "Init:CrashLoopBackOff",
    ),
    "sidecar": (
        WITH_SIDECAR,
        {
            "phase": "Running",
            "conditions": INITIALIZED,
            "initContainerStatuses": [container("side", ready=True, restarts=1, running=RUNNING)],
            "containerStatuses": [container(ready=True, running=RUNNING)],
        },
        "Running",
    ),
    "gated": ({}, {"phase": "Pending", "conditions": GATED}, "SchedulingGated"),
}


async def get_table_row(server: KubectlServer, path: str) -> tuple[list[tuple[object, ...]], list[object]]:
    """The columns and the cells of one object."""
    table = (await server.send("GET", path, accept=TABLE)).json()
    assert table["kind"] == "Table", table
    columns: list[tuple[object, ...]] = [
        (each["name"], each["type"], each["format"], each["priority"] > 0) for each in table["columnDefinitions"]
    ]
    (row,) = table["rows"]
    assert set(row["object"]) == {"kind", "apiVersion", "metadata"}
    conditions = [(each["type"], each["status"], each["reason"]) for each in row.get("conditions", ())]
    return columns, [*row["cells"], conditions]


@pytest.mark.parametrize("state", PODS)
async def test_pod_status_is_printed_the_same(candidate: KubectlServer, real: KubectlServer, state: str) -> None:
    spec, status, printed = PODS[state]
    tables = []
    for server in (candidate, real):
        pod = make_pod(spec=spec)
        await server.create_and_get(pod)
        path = server.path(pod, name="pod")
        reply = await server.send("PATCH", f"{path}/status", {"status": status}, media=MERGE)
        assert reply.ok, reply.body
        tables.append(await get_table_row(server, path))
    (columns, ours), (their_columns, theirs) = tables
    assert columns == their_columns
    assert without_ages(ours) == without_ages(theirs)
    assert ours[2] == printed


def without_ages(cells: list[object]) -> list[object]:
    """Ages of some seconds may differ."""
    return ["<age>" if str(cell) in RECENT_AGES else cell for cell in cells]


RECENT_AGES = {f"{seconds}s" for seconds in range(30)}

OTHERS: list[Manifest] = [
    make_object("ConfigMap", "map", data={"a": "b"}, binaryData={"c": "eA=="}),
    make_object("ConfigMap", "empty"),
    make_object("Secret", "secret", stringData={"a": "b", "c": "d"}),
    make_object("Service", "headless", spec={"clusterIP": "None", "selector": {"b": "c", "a": "b"}}),
    make_object(
        "Service", "ports", spec={"clusterIP": "None", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}
    ),
    make_object("Service", "elsewhere", spec={"type": "ExternalName", "externalName": "example.com"}),
    *VOLUME_AND_CLAIM,
    make_object(
        "Event",
        "event",
        involvedObject={"kind": "Pod", "name": "pod", "namespace": "<namespace>", "fieldPath": "spec.containers{a}"},
        reason="Started",
        message=" it began\n",
        type="Normal",
        source={"component": "kubelet", "host": "local-1"},
        firstTimestamp=LONG_AGO,
        lastTimestamp=LONG_AGO,
        count=2,
    ),
    {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "new"},
        "regarding": {"kind": "Pod", "name": "pod", "namespace": "<namespace>"},
        "reason": "Started",
        "note": "it began",
        "type": "Normal",
        "action": "Starting",
        "eventTime": "2026-01-02T03:04:05.123000Z",
        "reportingController": "example.com/one",
        "reportingInstance": "one-0",
    },
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lease"},
        "spec": {"holderIdentity": "me"},
    },
    make_object("Namespace", "<namespace>"),
    make_object(
        "Node",
        "<namespace>",
        spec={"unschedulable": True},
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.16.0.1"}],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3",
                "osImage": "",
                "kernelVersion": "6.1",
                "architecture": "amd64",
                "containerRuntimeVersion": "processes",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
            },
        },
    ),
    make_job(),
]


@pytest.mark.parametrize("manifest", OTHERS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
async def test_columns_and_cells_of_every_kind_are_the_same(
    candidate: KubectlServer, real: KubectlServer, manifest: Manifest
) -> None:
    written = in_namespace(manifest, real.namespace)
    name = written["metadata"]["name"]
    tables = []
    for server in (candidate, real):
        if written["kind"] != "Namespace":
            await server.create_and_get(written)
        if written["kind"] == "PersistentVolume":  # a controller sets it on a cluster
            path = f"{server.path(written, name=name)}/status"
            assert (await server.send("PATCH", path, {"status": {"phase": "Available"}}, media=MERGE)).ok
        tables.append(await get_table_row(server, server.path(written, name=name)))
    if written["kind"] in ("Node", "PersistentVolume"):
        await real.send("DELETE", real.path(written, name=name))
    assert tables[0][0] == tables[1][0]
    assert without_ages(tables[0][1]) == without_ages(tables[1][1])
