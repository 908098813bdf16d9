"""Strategic merge patches compared with a real API server."""

import pytest

from tests.local.served.objects import make_object, make_pod
from tests.local.served.servers import STRATEGIC, KubectlServer, Manifest

SERVICE = make_object(
    "Service",
    "service",
    spec={
        "clusterIP": "None",
        "selector": {"a": "b"},
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}, {"name": "c", "port": 3}],
    },
)
HELD = make_object("ConfigMap", "held", data={"a": "b"}) | {
    "metadata": {"name": "held", "finalizers": ["example.com/a", "example.com/b"], "labels": {"x": "1", "y": "2"}}
}

PATCHES: dict[str, tuple[Manifest, Manifest]] = {
    "a map is merged": (HELD, {"metadata": {"labels": {"x": "3", "y": None, "z": "4"}}}),
    "a map is replaced": (HELD, {"data": {"$patch": "replace", "c": "d"}}),
    "a map is deleted": (HELD, {"data": {"$patch": "delete"}}),
    "a list of texts is merged": (HELD, {"metadata": {"finalizers": ["example.com/c", "example.com/a"]}}),
    "a text is deleted from its list": (HELD, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}),
    "a list of texts gets an order": (
        HELD,
        {
            "metadata": {
                "$setElementOrder/finalizers": ["example.com/c", "example.com/b"],
                "finalizers": ["example.com/c"],
            }
        },
    ),
    "an item is changed by its key": (SERVICE, {"spec": {"ports": [{"port": 2, "name": "bb"}]}}),
    "an item is added": (SERVICE, {"spec": {"ports": [{"port": 9, "name": "i"}]}}),
    "an item is deleted": (SERVICE, {"spec": {"ports": [{"port": 2, "$patch": "delete"}]}}),
    "all items are replaced": (SERVICE, {"spec": {"ports": [{"$patch": "replace"}, {"port": 7, "name": "g"}]}}),
    "items get an order": (
        SERVICE,
        {
            "spec": {
                "$setElementOrder/ports": [{"port": 3}, {"port": 9}, {"port": 1}],
                "ports": [{"port": 9, "name": "i"}],
            }
        },
    ),
    "an order alone": (SERVICE, {"spec": {"$setElementOrder/ports": [{"port": 2}, {"port": 1}]}}),
    "an item is deleted and the rest ordered": (
        SERVICE,
        {
            "spec": {
                "$setElementOrder/ports": [{"port": 3}, {"port": 1}],
                "ports": [{"port": 2, "$patch": "delete"}],
            }
        },
    ),
    "an image by the container's name": (
        make_pod("image"),
        {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}},
    ),
    "an atomic list is replaced": (
        make_object("Service", "listed", spec=SERVICE["spec"] | {"externalIPs": ["192.0.2.1", "192.0.2.2"]}),
        {"spec": {"externalIPs": ["192.0.2.3"]}},
    ),
    "what is missing is added without its nulls": (
        make_object("ConfigMap", "empty"),
        {"data": {"a": "b", "c": None}, "metadata": {"annotations": {"d": "e"}}},
    ),
    "an item without its key": (SERVICE, {"spec": {"ports": [{"name": "b"}]}}),
    "an unknown directive": (HELD, {"data": {"$patch": "mend"}}),
    "an order that the list does not keep": (
        SERVICE,
        {"spec": {"$setElementOrder/ports": [{"port": 1}, {"port": 2}], "ports": [{"port": 9, "name": "i"}]}},
    ),
}


@pytest.mark.parametrize("name", PATCHES)
async def test_strategic_merge_patch_has_the_same_result(
    candidate: KubectlServer, real: KubectlServer, name: str
) -> None:
    manifest, patch = PATCHES[name]
    results = []
    for server in (candidate, real):
        await server.create_and_get(manifest)
        path = server.path(manifest, name=manifest["metadata"]["name"])
        reply = await server.send("PATCH", path, patch, media=STRATEGIC)
        results.append((reply.ok, patched_fields(reply.json()) if reply.ok else None))
        if reply.ok:
            assert reply.json() == (await server.send("GET", path)).json()
    assert results[0] == results[1]


def patched_fields(stored: Manifest) -> Manifest:
    metadata = {key: stored["metadata"].get(key) for key in ("labels", "annotations", "finalizers")}
    spec = stored.get("spec", {})
    lists = {key: spec[key] for key in ("ports", "externalIPs") if key in spec}
    images = [each["image"] for each in spec.get("containers", ())]
    return {"metadata": metadata, "data": stored.get("data"), "spec": lists, "images": images}
