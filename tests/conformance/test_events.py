"""Events are stored once and served in two forms: core v1 and events.k8s.io/v1."""

from tests.conformance.servers import MERGE, Server

CORE_EVENT = {
    "metadata": {"name": "old"},
    "reason": "Started",
    "message": "it runs",
    "type": "Normal",
    "source": {"component": "kubelet", "host": "n1"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:01Z",
    "count": 2,
}
EVENTS_V1_EVENT = {
    "metadata": {"name": "new"},
    "reason": "Started",
    "note": "it runs",
    "type": "Warning",
    "action": "Starting",
    "reportingController": "a.b/c",
    "reportingInstance": "instance",
    "eventTime": "2026-01-01T00:00:00.000001Z",
}
VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


def object_reference(server: Server, name: str) -> dict[str, str]:
    return {"kind": "Pod", "apiVersion": "v1", "name": name, "namespace": server.namespace, "uid": "u"}


def without_volatile_fields(event: dict[str, object]) -> dict[str, object]:
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    stable = {key: value for key, value in metadata.items() if key not in (*VOLATILE, "namespace")}
    return event | {"metadata": stable}


async def test_core_event_is_served_as_events_v1(server: Server) -> None:
    regarding = object_reference(server, "p")
    created = await server.create("core/events", CORE_EVENT | {"involvedObject": regarding})
    empty = {"eventTime": None, "reportingComponent": "", "reportingInstance": ""}
    assert (
        without_volatile_fields(created)
        == {"kind": "Event", "apiVersion": "v1", "involvedObject": regarding} | CORE_EVENT | empty
    )
    assert without_volatile_fields(await server.read("events_v1/old")) == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": "old"},
        "eventTime": None,
        "reason": "Started",
        "regarding": regarding,
        "note": "it runs",
        "type": "Normal",
        "deprecatedSource": {"component": "kubelet", "host": "n1"},
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
        "deprecatedLastTimestamp": "2026-01-01T00:00:01Z",
        "deprecatedCount": 2,
    }


async def test_events_v1_event_is_served_as_core_event(server: Server) -> None:
    regarding = object_reference(server, "p")
    created = await server.create("events_v1", EVENTS_V1_EVENT | {"regarding": regarding})
    empty: dict[str, object] = {
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }
    assert (
        without_volatile_fields(created)
        == {"kind": "Event", "apiVersion": "events.k8s.io/v1", "regarding": regarding} | EVENTS_V1_EVENT | empty
    )
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}
    await server.request_json("PATCH", "events_v1/new", {"series": series}, content_type=MERGE)
    assert without_volatile_fields(await server.read("core/events/new")) == {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": "new"},
        "involvedObject": regarding,
        "reason": "Started",
        "message": "it runs",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "type": "Warning",
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "series": series,
        "action": "Starting",
        "reportingComponent": "a.b/c",
        "reportingInstance": "instance",
    }


async def test_field_selectors_of_events(server: Server) -> None:
    await server.create("core/events", CORE_EVENT | {"involvedObject": object_reference(server, "p")})
    await server.create("events_v1", EVENTS_V1_EVENT | {"regarding": object_reference(server, "q")})

    async def names(path: str, selector: str) -> list[str]:
        return (await server.list_(path, fieldSelector=selector)).names

    assert await names("core/events", "involvedObject.name=p,involvedObject.kind=Pod") == ["old"]
    assert await names("core/events", f"involvedObject.uid=u,involvedObject.namespace={server.namespace}") == [
        "new",
        "old",
    ]
    assert await names("core/events", "type=Warning") == ["new"]
    assert await names("core/events", "reason=Started,source=kubelet") == ["old"]
    assert await names("core/events", "reportingComponent=a.b/c") == ["new"]
    assert await names("events_v1", "regarding.name=p") == ["old"]
    assert await names("events_v1", "reportingController=a.b/c") == ["new"]
    assert (await server.list_("events_v1", fieldSelector="involvedObject.name=p")).code == 400
    assert (await server.list_("core/events", fieldSelector="regarding.name=p")).code == 400


async def test_event_deleted_in_one_form_is_deleted_in_the_other(server: Server) -> None:
    await server.create("core/events", CORE_EVENT | {"involvedObject": object_reference(server, "p")})
    reply = await server.request("DELETE", "events_v1/old")
    assert (reply.code, reply.body["details"]["group"]) == (200, "events.k8s.io")
    assert (await server.request("GET", "core/events/old")).code == 404
