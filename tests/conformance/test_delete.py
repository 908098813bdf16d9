"""Deletion: at once, with a grace period, finalizers, owner references, namespaces."""

import asyncio
from typing import Any

import pytest

from tests.conformance.objects import make_config_map, make_job, make_owner_references, make_pod
from tests.conformance.servers import MERGE, Server


async def wait_deleted(server: Server, path: str) -> None:
    """Wait until the object is deleted."""
    async with asyncio.timeout(100):
        while (await server.request("GET", path)).code != 404:
            await asyncio.sleep(0.02)


async def wait_for(server: Server, path: str, condition: Any) -> Any:
    """Wait until a condition is true of the object; returns it."""
    async with asyncio.timeout(100):
        while not condition(manifest := await server.read(path)):
            await asyncio.sleep(0.02)
    return manifest


async def wait_for_garbage_collection(server: Server) -> None:
    """Wait until the garbage collector has processed all earlier changes: create a dependent without an owner."""
    missing = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "nobody"}
    await server.create("core/configmaps", make_config_map("sign", ownerReferences=[missing]))
    await wait_deleted(server, "core/configmaps/sign")


async def test_object_without_finalizers_is_deleted_at_once(server: Server) -> None:
    created = await server.create("core/configmaps", make_config_map("a"))
    reply = await server.request("DELETE", "core/configmaps/a")
    assert (reply.code, reply.body["kind"], reply.body["status"]) == (200, "Status", "Success")
    assert reply.body["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    assert (await server.request("GET", "core/configmaps/a")).code == 404
    assert (await server.request("DELETE", "core/configmaps/a")).code == 404
    await server.create("core/services", {"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}})
    assert (await server.request("DELETE", "core/services/a")).body["kind"] == "Service", "some kinds return the object"


async def test_preconditions_of_a_deletion(server: Server) -> None:
    created = (await server.create("core/configmaps", make_config_map("a")))["metadata"]

    async def delete(**preconditions: str) -> tuple[int, str]:
        reply = await server.request("DELETE", "core/configmaps/a", {"preconditions": preconditions})
        return reply.code, reply.body.get("reason", "")

    assert await delete(uid="another") == (409, "Conflict")
    assert await delete(resourceVersion="1") == (409, "Conflict")
    assert await delete(uid=created["uid"], resourceVersion="1") == (409, "Conflict")
    assert await delete(uid=created["uid"], resourceVersion=created["resourceVersion"]) == (200, "")


async def test_invalid_propagation_policy_is_rejected(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    assert (await server.request("DELETE", "core/configmaps/a", {"propagationPolicy": "Bogus"})).code == 422
    both = {"propagationPolicy": "Orphan", "orphanDependents": True}
    assert (await server.request("DELETE", "core/configmaps/a", both)).code == 422
    assert (await server.request("DELETE", "core/configmaps/a", {"kind": "Pod", "apiVersion": "v1"})).code == 400
    assert (await server.request("GET", "core/configmaps/a")).code == 200


# Pods


async def test_unbound_pod_is_deleted_at_once(server: Server) -> None:
    await server.create("core/pods", make_pod("a"))
    reply = await server.request("DELETE", "core/pods/a", {"gracePeriodSeconds": 20})
    assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await server.request("GET", "core/pods/a")).code == 404


async def test_finished_pod_is_deleted_at_once(server: Server) -> None:
    await server.create("core/pods", make_pod("a", node="n1"))
    await server.patch("core/pods/a/status", {"status": {"phase": "Succeeded"}})
    await server.request_json("DELETE", "core/pods/a")
    assert (await server.request("GET", "core/pods/a")).code == 404


async def test_bound_pod_has_a_grace_period(server: Server) -> None:
    await server.create("core/pods", make_pod("a", node="n1"))
    first = (await server.request_json("DELETE", "core/pods/a"))["metadata"]
    assert (first["deletionGracePeriodSeconds"], first["generation"]) == (30, 2)
    longer = (await server.request_json("DELETE", "core/pods/a", {"gracePeriodSeconds": 60}))["metadata"]
    assert longer["resourceVersion"] == first["resourceVersion"], "a longer grace period changes nothing"
    shorter = (await server.request_json("DELETE", "core/pods/a", {"gracePeriodSeconds": 10}))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    labelled = (await server.patch("core/pods/a", {"metadata": {"labels": {"x": "y"}}}))["metadata"]
    assert labelled["deletionTimestamp"] == shorter["deletionTimestamp"]
    await server.request_json("DELETE", "core/pods/a", {"gracePeriodSeconds": 0})
    assert (await server.request("GET", "core/pods/a")).code == 404


async def test_eviction_deletes_the_pod(server: Server) -> None:
    await server.create("core/pods", make_pod("a", node="n1"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    reply = await server.request(
        "POST", "core/pods/a/eviction", eviction | {"deleteOptions": {"gracePeriodSeconds": 7}}
    )
    assert (reply.code, reply.body["status"]) == (201, "Success")
    assert (await server.read("core/pods/a"))["metadata"]["deletionGracePeriodSeconds"] == 7
    await server.request_json("DELETE", "core/pods/a", {"gracePeriodSeconds": 0})


# Finalizers


@pytest.mark.parametrize(
    ("path", "manifest"), [("core/configmaps", make_config_map), ("jobs", make_job), ("core/pods", make_pod)]
)
async def test_object_is_deleted_with_its_last_finalizer(server: Server, path: str, manifest: Any) -> None:
    await server.create(path, manifest("a", finalizers=["a.b/c", "d.e/f"]))
    marked = (await server.request_json("DELETE", f"{path}/a"))["metadata"]
    assert marked["deletionTimestamp"]
    assert marked["deletionGracePeriodSeconds"] == 0
    again = (await server.request_json("DELETE", f"{path}/a"))["metadata"]
    assert again["resourceVersion"] == marked["resourceVersion"]
    added = {"metadata": {"finalizers": ["a.b/c", "d.e/f", "g.h/i"]}}
    assert (await server.request("PATCH", f"{path}/a", added, content_type=MERGE)).code == 422
    assert (await server.patch(f"{path}/a", {"metadata": {"finalizers": ["a.b/c"]}}))["metadata"]["finalizers"] == [
        "a.b/c"
    ]
    last = await server.patch(f"{path}/a", {"metadata": {"finalizers": None}})
    assert "finalizers" not in last["metadata"]
    assert (await server.request("GET", f"{path}/a")).code == 404


async def test_deletion_cannot_be_undone(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a", finalizers=["a.b/c"]))
    marked = (await server.request_json("DELETE", "core/configmaps/a"))["metadata"]
    again = await server.request_json(
        "PUT", "core/configmaps/a", make_config_map("a", finalizers=["a.b/c"], labels={"x": "y"})
    )
    patched = await server.patch("core/configmaps/a", {"metadata": {"deletionTimestamp": None}})
    for metadata in (again["metadata"], patched["metadata"]):
        assert metadata["deletionTimestamp"] == marked["deletionTimestamp"]
        assert metadata["deletionGracePeriodSeconds"] == 0
    await server.request_json("PUT", "core/configmaps/a", make_config_map("a"))
    assert (await server.request("GET", "core/configmaps/a")).code == 404


async def test_pod_needs_both_no_finalizer_and_no_grace_period(server: Server) -> None:
    await server.create("core/pods", make_pod("a", node="n1", finalizers=["a.b/c"]))
    await server.request_json("DELETE", "core/pods/a")
    released = await server.patch("core/pods/a", {"metadata": {"finalizers": None}})
    assert released["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await server.request("GET", "core/pods/a")).code == 200
    await server.request_json("DELETE", "core/pods/a", {"gracePeriodSeconds": 0})
    assert (await server.request("GET", "core/pods/a")).code == 404


# Owners. They are ConfigMaps: a real garbage collector takes up to 30 s to watch a new custom kind.


async def test_background_deletion_of_dependents(server: Server) -> None:
    owner = await server.create("core/configmaps", make_config_map("owner"))
    await server.create("core/pods", make_pod("child", ownerReferences=make_owner_references(owner)))
    child = await server.create(
        "core/configmaps", make_config_map("child", ownerReferences=make_owner_references(owner))
    )
    await server.create(
        "core/secrets", {"metadata": {"name": "grandchild", "ownerReferences": make_owner_references(child)}}
    )
    await server.create("core/configmaps", make_config_map("stranger"))
    await server.request_json("DELETE", "core/configmaps/owner")
    for path in ("core/pods/child", "core/configmaps/child", "core/secrets/grandchild"):
        await wait_deleted(server, path)
    assert (await server.request("GET", "core/configmaps/stranger")).code == 200


async def test_foreground_deletion_deletes_the_owner_last(server: Server) -> None:
    owner = await server.create("core/configmaps", make_config_map("owner"))
    references = make_owner_references(owner, block=True)
    await server.create("core/pods", make_pod("child", node="n1", ownerReferences=references))
    await wait_for_garbage_collection(server)
    marked = await server.request_json("DELETE", "core/configmaps/owner", {"propagationPolicy": "Foreground"})
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    await wait_for(server, "core/pods/child", lambda pod: pod["metadata"].get("deletionTimestamp"))
    await wait_for_garbage_collection(server)
    assert (await server.request("GET", "core/configmaps/owner")).code == 200, "its pod still has a grace period"
    await server.request_json("DELETE", "core/pods/child", {"gracePeriodSeconds": 0})
    await wait_deleted(server, "core/configmaps/owner")


async def test_foreground_deletion_waits_for_blocking_dependents(server: Server) -> None:
    owner = await server.create("core/configmaps", make_config_map("owner"))
    await server.create("core/pods", make_pod("child", node="n1", ownerReferences=make_owner_references(owner)))
    await wait_for_garbage_collection(server)
    await server.request_json("DELETE", "core/configmaps/owner", {"propagationPolicy": "Foreground"})
    await wait_deleted(server, "core/configmaps/owner")
    await wait_for(server, "core/pods/child", lambda pod: pod["metadata"].get("deletionTimestamp"))
    await server.request_json("DELETE", "core/pods/child", {"gracePeriodSeconds": 0})


async def test_cycle_of_owners_is_deleted(server: Server) -> None:
    one = await server.create("core/configmaps", make_config_map("one"))
    two = await server.create(
        "core/configmaps", make_config_map("two", ownerReferences=make_owner_references(one, block=True))
    )
    await server.patch("core/configmaps/one", {"metadata": {"ownerReferences": make_owner_references(two, block=True)}})
    await wait_for_garbage_collection(server)
    await server.request_json("DELETE", "core/configmaps/one", {"propagationPolicy": "Foreground"})
    await wait_deleted(server, "core/configmaps/one")
    await wait_deleted(server, "core/configmaps/two")


async def test_orphans_lose_their_owner_reference(server: Server) -> None:
    owner = await server.create("core/configmaps", make_config_map("owner"))
    await server.create("core/configmaps", make_config_map("child", ownerReferences=make_owner_references(owner)))
    await wait_for_garbage_collection(server)
    await server.request_json("DELETE", "core/configmaps/owner", {"propagationPolicy": "Orphan"})
    await wait_deleted(server, "core/configmaps/owner")
    await wait_for_garbage_collection(server)
    assert "ownerReferences" not in (await server.read("core/configmaps/child"))["metadata"]


async def test_dependent_of_a_missing_owner_is_deleted(server: Server) -> None:
    owner = await server.create("core/configmaps", make_config_map("owner"))
    await server.request_json("DELETE", "core/configmaps/owner")
    await server.create("core/secrets", {"metadata": {"name": "late", "ownerReferences": make_owner_references(owner)}})
    await wait_deleted(server, "core/secrets/late")
    await server.create("core/configmaps", make_config_map("owner"))
    await server.create("core/secrets", {"metadata": {"name": "late", "ownerReferences": make_owner_references(owner)}})
    await wait_deleted(server, "core/secrets/late")  # the new owner has the same name, but another UID


async def test_object_with_one_remaining_owner_is_kept(server: Server) -> None:
    one = await server.create("core/configmaps", make_config_map("one"))
    two = await server.create("core/configmaps", make_config_map("two"))
    references = [*make_owner_references(one), *make_owner_references(two)]
    await server.create("core/secrets", {"metadata": {"name": "child", "ownerReferences": references}})
    await wait_for_garbage_collection(server)
    await server.request_json("DELETE", "core/configmaps/one")
    child = await wait_for(server, "core/secrets/child", lambda each: len(each["metadata"]["ownerReferences"]) == 1)
    assert child["metadata"]["ownerReferences"][0]["name"] == "two"
    await server.request_json("DELETE", "core/configmaps/two")
    await wait_deleted(server, "core/secrets/child")


async def test_owner_in_another_namespace_does_not_count(server: Server) -> None:
    """The garbage collector looks for an owner in the namespace of its dependent."""
    other = f"{server.namespace}-other"
    await server.create("/api/v1/namespaces", {"metadata": {"name": other}})
    owner = await server.create(f"/api/v1/namespaces/{other}/configmaps", make_config_map("owner"))
    await server.create(
        "core/secrets", {"metadata": {"name": "child", "ownerReferences": make_owner_references(owner)}}
    )
    await wait_deleted(server, "core/secrets/child")
    await server.request_json("DELETE", f"/api/v1/namespaces/{other}")


# Many at once


async def test_deletecollection_with_a_selector(server: Server) -> None:
    for number in range(4):
        side = {"side": "even" if number % 2 == 0 else "odd"}
        await server.create("core/secrets", {"metadata": {"name": f"s{number}", "labels": side}})
    reply = await server.request("DELETE", "core/secrets?labelSelector=side%3Deven", {})
    assert (reply.code, reply.body["kind"], reply.names) == (200, "SecretList", ["s0", "s2"])
    assert (await server.list_("core/secrets")).names == ["s1", "s3"]
    await server.request_json("DELETE", "core/secrets?fieldSelector=metadata.name%3Ds3")
    assert (await server.list_("core/secrets")).names == ["s1"]


async def test_deletecollection_of_pods_has_a_grace_period(server: Server) -> None:
    await server.create("core/pods", make_pod("bound", node="n1"))
    await server.create("core/pods", make_pod("free"))
    await server.request_json("DELETE", "core/pods", {"gracePeriodSeconds": 9})
    pods = (await server.list_("core/pods")).body["items"]
    assert [(pod["metadata"]["name"], pod["metadata"]["deletionGracePeriodSeconds"]) for pod in pods] == [("bound", 9)]
    await server.request_json("DELETE", "core/pods", {"gracePeriodSeconds": 0})


# Namespaces


async def test_namespace_is_deleted_with_its_content(server: Server) -> None:
    name = f"{server.namespace}-x"
    path = f"/api/v1/namespaces/{name}"
    created = await server.create("/api/v1/namespaces", {"metadata": {"name": name}})
    assert created["status"] == {"phase": "Active"}
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    await server.create(f"{path}/configmaps", make_config_map("held", finalizers=["a.b/c"]))
    await server.create(f"{path}/secrets", {"metadata": {"name": "a"}})
    deleted = await server.request_json("DELETE", path)
    assert deleted["status"]["phase"] == "Terminating"
    refused = await server.request("POST", f"{path}/configmaps", make_config_map("late"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await wait_deleted(server, f"{path}/secrets/a")
    await wait_for(server, f"{path}/configmaps/held", lambda each: each["metadata"].get("deletionTimestamp"))
    assert (await server.request("GET", path)).code == 200
    await server.patch(f"{path}/configmaps/held", {"metadata": {"finalizers": None}})
    if server.name == "embedded":  # the real controller looks again after a minute or so
        await wait_deleted(server, path)


async def test_default_namespace_cannot_be_deleted(server: Server) -> None:
    reply = await server.request("DELETE", "/api/v1/namespaces/default")
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == 'namespaces "default" is forbidden: this namespace may not be deleted'
