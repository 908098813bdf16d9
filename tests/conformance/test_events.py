"""Events have two forms, one storage."""

from tests.conformance.servers import MERGE, Server

OLD = {
    "metadata": {"name": "old"},
    "reason": "Started",
    "message": "it runs",
    "type": "Normal",
    "source": {"component": "kubelet", "host": "n1"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:01Z",
    "count": 2,
}
NEW = {
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


def about(server: Server, name: str) -> dict[str, str]:
    return {"kind": "Pod", "apiVersion": "v1", "name": name, "namespace": server.namespace, "uid": "u"}


def plain(event: dict[str, object]) -> dict[str, object]:
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    kept = {key: value for key, value in metadata.items() if key not in (*VOLATILE, "namespace")}
    return event | {"metadata": kept}


async def test_an_old_event_can_be_read_in_the_new_form(server: Server) -> None:
    regarding = about(server, "p")
    made = await server.create("core/events", OLD | {"involvedObject": regarding})
    blank = {"eventTime": None, "reportingComponent": "", "reportingInstance": ""}
    assert plain(made) == {"kind": "Event", "apiVersion": "v1", "involvedObject": regarding} | OLD | blank
    assert plain(await server.read("new_events/old")) == {
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


async def test_a_new_event_can_be_read_in_the_old_form_and_goes_on_as_a_series(server: Server) -> None:
    regarding = about(server, "p")
    made = await server.create("new_events", NEW | {"regarding": regarding})
    blank: dict[str, object] = {
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }
    assert plain(made) == {"kind": "Event", "apiVersion": "events.k8s.io/v1", "regarding": regarding} | NEW | blank
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}
    await server.done("PATCH", "new_events/new", {"series": series}, content_type=MERGE)
    assert plain(await server.read("core/events/new")) == {
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


async def test_events_are_selected_by_what_they_are_about(server: Server) -> None:
    await server.create("core/events", OLD | {"involvedObject": about(server, "p")})
    await server.create("new_events", NEW | {"regarding": about(server, "q")})

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
    assert await names("new_events", "regarding.name=p") == ["old"]
    assert await names("new_events", "reportingController=a.b/c") == ["new"]
    assert (await server.list_("new_events", fieldSelector="involvedObject.name=p")).code == 400
    assert (await server.list_("core/events", fieldSelector="regarding.name=p")).code == 400


async def test_an_event_deleted_in_one_form_is_gone_in_the_other(server: Server) -> None:
    await server.create("core/events", OLD | {"involvedObject": about(server, "p")})
    reply = await server.ask("DELETE", "new_events/old")
    assert (reply.code, reply.body["details"]["group"]) == (200, "events.k8s.io")
    assert (await server.ask("GET", "core/events/old")).code == 404
