"""Strategic merge patches give on the embedded server what they give on a real one."""

import pytest

from tests.local.served.objects import a_pod, an_object
from tests.local.served.servers import STRATEGIC, Manifest, Served

SERVICE = an_object(
    "Service",
    "service",
    spec={
        "clusterIP": "None",
        "selector": {"a": "b"},
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}, {"name": "c", "port": 3}],
    },
)
HELD = an_object("ConfigMap", "held", data={"a": "b"}) | {
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
        a_pod("image"),
        {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}},
    ),
    "an atomic list is replaced": (
        an_object("Service", "listed", spec=SERVICE["spec"] | {"externalIPs": ["192.0.2.1", "192.0.2.2"]}),
        {"spec": {"externalIPs": ["192.0.2.3"]}},
    ),
    "what is missing is added without its nulls": (
        an_object("ConfigMap", "empty"),
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
async def test_a_patch_does_the_same_on_both(beside: Served, real: Served, name: str) -> None:
    manifest, patch = PATCHES[name]
    outcomes = []
    for server in (beside, real):
        await server.stored(manifest)
        path = server.path(manifest, name=manifest["metadata"]["name"])
        reply = await server.send("PATCH", path, patch, media=STRATEGIC)
        outcomes.append((reply.ok, shown(reply.json()) if reply.ok else None))
        if reply.ok:
            assert reply.json() == (await server.send("GET", path)).json()
    assert outcomes[0] == outcomes[1]


def shown(stored: Manifest) -> Manifest:
    metadata = {key: stored["metadata"].get(key) for key in ("labels", "annotations", "finalizers")}
    spec = stored.get("spec", {})
    seen = {key: spec[key] for key in ("ports", "externalIPs") if key in spec}
    images = [each["image"] for each in spec.get("containers", ())]
    return {"metadata": metadata, "data": stored.get("data"), "spec": seen, "images": images}
