"""The end of objects: at once, with grace, behind finalizers, with their owners, with their namespace."""

import asyncio
from typing import Any

import pytest

from tests.conformance.objects import a_config_map, a_job, a_pod, owned_by
from tests.conformance.servers import MERGE, Server


async def gone(server: Server, path: str) -> None:
    """Wait until nothing is there any more."""
    async with asyncio.timeout(100):
        while (await server.ask("GET", path)).code != 404:
            await asyncio.sleep(0.02)


async def becomes(server: Server, path: str, holds: Any) -> Any:
    """Wait until something holds of the object."""
    async with asyncio.timeout(100):
        while not holds(manifest := await server.read(path)):
            await asyncio.sleep(0.02)
    return manifest


async def settled(server: Server) -> None:
    """Wait until the garbage collector has seen everything so far: it removes an object whose owner is not there."""
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "nobody"}
    await server.create("core/configmaps", a_config_map("sign", ownerReferences=[nobody]))
    await gone(server, "core/configmaps/sign")


async def test_what_nothing_holds_goes_at_once(server: Server) -> None:
    made = await server.create("core/configmaps", a_config_map("a"))
    reply = await server.ask("DELETE", "core/configmaps/a")
    assert (reply.code, reply.body["kind"], reply.body["status"]) == (200, "Status", "Success")
    assert reply.body["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await server.ask("GET", "core/configmaps/a")).code == 404
    assert (await server.ask("DELETE", "core/configmaps/a")).code == 404
    await server.create("core/services", {"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}})
    assert (await server.ask("DELETE", "core/services/a")).body["kind"] == "Service", (
        "some kinds answer with the object"
    )


async def test_a_deletion_can_be_for_one_object_and_one_version_only(server: Server) -> None:
    made = (await server.create("core/configmaps", a_config_map("a")))["metadata"]

    async def delete(**preconditions: str) -> tuple[int, str]:
        reply = await server.ask("DELETE", "core/configmaps/a", {"preconditions": preconditions})
        return reply.code, reply.body.get("reason", "")

    assert await delete(uid="another") == (409, "Conflict")
    assert await delete(resourceVersion="1") == (409, "Conflict")
    assert await delete(uid=made["uid"], resourceVersion="1") == (409, "Conflict")
    assert await delete(uid=made["uid"], resourceVersion=made["resourceVersion"]) == (200, "")


async def test_what_is_no_propagation_policy_is_refused(server: Server) -> None:
    await server.create("core/configmaps", a_config_map("a"))
    assert (await server.ask("DELETE", "core/configmaps/a", {"propagationPolicy": "Bogus"})).code == 422
    both = {"propagationPolicy": "Orphan", "orphanDependents": True}
    assert (await server.ask("DELETE", "core/configmaps/a", both)).code == 422
    assert (await server.ask("DELETE", "core/configmaps/a", {"kind": "Pod", "apiVersion": "v1"})).code == 400
    assert (await server.ask("GET", "core/configmaps/a")).code == 200


# Pods


async def test_a_pod_that_no_node_has_goes_at_once(server: Server) -> None:
    await server.create("core/pods", a_pod("a"))
    reply = await server.ask("DELETE", "core/pods/a", {"gracePeriodSeconds": 20})
    assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await server.ask("GET", "core/pods/a")).code == 404


async def test_a_pod_that_has_finished_goes_at_once(server: Server) -> None:
    await server.create("core/pods", a_pod("a", node="n1"))
    await server.patch("core/pods/a/status", {"status": {"phase": "Succeeded"}})
    await server.done("DELETE", "core/pods/a")
    assert (await server.ask("GET", "core/pods/a")).code == 404


async def test_a_pod_on_a_node_has_its_grace_until_the_node_ends_it(server: Server) -> None:
    await server.create("core/pods", a_pod("a", node="n1"))
    first = (await server.done("DELETE", "core/pods/a"))["metadata"]
    assert (first["deletionGracePeriodSeconds"], first["generation"]) == (30, 2)
    longer = (await server.done("DELETE", "core/pods/a", {"gracePeriodSeconds": 60}))["metadata"]
    assert longer["resourceVersion"] == first["resourceVersion"], "a longer grace changes nothing"
    shorter = (await server.done("DELETE", "core/pods/a", {"gracePeriodSeconds": 10}))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    labelled = (await server.patch("core/pods/a", {"metadata": {"labels": {"x": "y"}}}))["metadata"]
    assert labelled["deletionTimestamp"] == shorter["deletionTimestamp"]
    await server.done("DELETE", "core/pods/a", {"gracePeriodSeconds": 0})
    assert (await server.ask("GET", "core/pods/a")).code == 404


async def test_an_eviction_is_a_deletion(server: Server) -> None:
    await server.create("core/pods", a_pod("a", node="n1"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    reply = await server.ask("POST", "core/pods/a/eviction", eviction | {"deleteOptions": {"gracePeriodSeconds": 7}})
    assert (reply.code, reply.body["status"]) == (201, "Success")
    assert (await server.read("core/pods/a"))["metadata"]["deletionGracePeriodSeconds"] == 7
    await server.done("DELETE", "core/pods/a", {"gracePeriodSeconds": 0})


# Finalizers


@pytest.mark.parametrize(
    ("path", "manifest"), [("core/configmaps", a_config_map), ("jobs", a_job), ("core/pods", a_pod)]
)
async def test_a_finalizer_holds_an_object_until_it_is_removed(server: Server, path: str, manifest: Any) -> None:
    await server.create(path, manifest("a", finalizers=["a.b/c", "d.e/f"]))
    marked = (await server.done("DELETE", f"{path}/a"))["metadata"]
    assert marked["deletionTimestamp"]
    assert marked["deletionGracePeriodSeconds"] == 0
    again = (await server.done("DELETE", f"{path}/a"))["metadata"]
    assert again["resourceVersion"] == marked["resourceVersion"]
    added = {"metadata": {"finalizers": ["a.b/c", "d.e/f", "g.h/i"]}}
    assert (await server.ask("PATCH", f"{path}/a", added, content_type=MERGE)).code == 422
    assert (await server.patch(f"{path}/a", {"metadata": {"finalizers": ["a.b/c"]}}))["metadata"]["finalizers"] == [
        "a.b/c"
    ]
    last = await server.patch(f"{path}/a", {"metadata": {"finalizers": None}})
    assert "finalizers" not in last["metadata"]
    assert (await server.ask("GET", f"{path}/a")).code == 404


async def test_a_deletion_cannot_be_taken_back(server: Server) -> None:
    await server.create("core/configmaps", a_config_map("a", finalizers=["a.b/c"]))
    marked = (await server.done("DELETE", "core/configmaps/a"))["metadata"]
    again = await server.done("PUT", "core/configmaps/a", a_config_map("a", finalizers=["a.b/c"], labels={"x": "y"}))
    patched = await server.patch("core/configmaps/a", {"metadata": {"deletionTimestamp": None}})
    for metadata in (again["metadata"], patched["metadata"]):
        assert metadata["deletionTimestamp"] == marked["deletionTimestamp"]
        assert metadata["deletionGracePeriodSeconds"] == 0
    await server.done("PUT", "core/configmaps/a", a_config_map("a"))
    assert (await server.ask("GET", "core/configmaps/a")).code == 404


async def test_a_pods_finalizer_and_its_grace_must_both_be_over(server: Server) -> None:
    await server.create("core/pods", a_pod("a", node="n1", finalizers=["a.b/c"]))
    await server.done("DELETE", "core/pods/a")
    released = await server.patch("core/pods/a", {"metadata": {"finalizers": None}})
    assert released["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await server.ask("GET", "core/pods/a")).code == 200
    await server.done("DELETE", "core/pods/a", {"gracePeriodSeconds": 0})
    assert (await server.ask("GET", "core/pods/a")).code == 404


# Owners. They are ConfigMaps: a real garbage collector takes up to half a minute to hear of a new custom kind.


async def test_dependents_go_after_their_owner(server: Server) -> None:
    owner = await server.create("core/configmaps", a_config_map("owner"))
    await server.create("core/pods", a_pod("child", ownerReferences=owned_by(owner)))
    child = await server.create("core/configmaps", a_config_map("child", ownerReferences=owned_by(owner)))
    await server.create("core/secrets", {"metadata": {"name": "grandchild", "ownerReferences": owned_by(child)}})
    await server.create("core/configmaps", a_config_map("stranger"))
    await server.done("DELETE", "core/configmaps/owner")
    for path in ("core/pods/child", "core/configmaps/child", "core/secrets/grandchild"):
        await gone(server, path)
    assert (await server.ask("GET", "core/configmaps/stranger")).code == 200


async def test_an_owner_deleted_in_the_foreground_goes_last(server: Server) -> None:
    owner = await server.create("core/configmaps", a_config_map("owner"))
    references = owned_by(owner, block=True)
    await server.create("core/pods", a_pod("child", node="n1", ownerReferences=references))
    await settled(server)
    marked = await server.done("DELETE", "core/configmaps/owner", {"propagationPolicy": "Foreground"})
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    await becomes(server, "core/pods/child", lambda pod: pod["metadata"].get("deletionTimestamp"))
    await settled(server)
    assert (await server.ask("GET", "core/configmaps/owner")).code == 200, "its pod still has its grace"
    await server.done("DELETE", "core/pods/child", {"gracePeriodSeconds": 0})
    await gone(server, "core/configmaps/owner")


async def test_in_the_foreground_only_dependents_that_block_are_waited_for(server: Server) -> None:
    owner = await server.create("core/configmaps", a_config_map("owner"))
    await server.create("core/pods", a_pod("child", node="n1", ownerReferences=owned_by(owner)))
    await settled(server)
    await server.done("DELETE", "core/configmaps/owner", {"propagationPolicy": "Foreground"})
    await gone(server, "core/configmaps/owner")
    await becomes(server, "core/pods/child", lambda pod: pod["metadata"].get("deletionTimestamp"))
    await server.done("DELETE", "core/pods/child", {"gracePeriodSeconds": 0})


async def test_two_that_own_each_other_go_together(server: Server) -> None:
    one = await server.create("core/configmaps", a_config_map("one"))
    two = await server.create("core/configmaps", a_config_map("two", ownerReferences=owned_by(one, block=True)))
    await server.patch("core/configmaps/one", {"metadata": {"ownerReferences": owned_by(two, block=True)}})
    await settled(server)
    await server.done("DELETE", "core/configmaps/one", {"propagationPolicy": "Foreground"})
    await gone(server, "core/configmaps/one")
    await gone(server, "core/configmaps/two")


async def test_orphans_stay_and_forget_their_owner(server: Server) -> None:
    owner = await server.create("core/configmaps", a_config_map("owner"))
    await server.create("core/configmaps", a_config_map("child", ownerReferences=owned_by(owner)))
    await settled(server)
    await server.done("DELETE", "core/configmaps/owner", {"propagationPolicy": "Orphan"})
    await gone(server, "core/configmaps/owner")
    await settled(server)
    assert "ownerReferences" not in (await server.read("core/configmaps/child"))["metadata"]


async def test_an_object_whose_owner_has_gone_before_goes_too(server: Server) -> None:
    owner = await server.create("core/configmaps", a_config_map("owner"))
    await server.done("DELETE", "core/configmaps/owner")
    await server.create("core/secrets", {"metadata": {"name": "late", "ownerReferences": owned_by(owner)}})
    await gone(server, "core/secrets/late")
    await server.create("core/configmaps", a_config_map("owner"))
    await server.create("core/secrets", {"metadata": {"name": "late", "ownerReferences": owned_by(owner)}})
    await gone(server, "core/secrets/late")  # the name is the same, the UID is not


async def test_with_one_of_two_owners_gone_an_object_stays_and_forgets_it(server: Server) -> None:
    one = await server.create("core/configmaps", a_config_map("one"))
    two = await server.create("core/configmaps", a_config_map("two"))
    references = [*owned_by(one), *owned_by(two)]
    await server.create("core/secrets", {"metadata": {"name": "child", "ownerReferences": references}})
    await settled(server)
    await server.done("DELETE", "core/configmaps/one")
    child = await becomes(server, "core/secrets/child", lambda each: len(each["metadata"]["ownerReferences"]) == 1)
    assert child["metadata"]["ownerReferences"][0]["name"] == "two"
    await server.done("DELETE", "core/configmaps/two")
    await gone(server, "core/secrets/child")


async def test_an_owner_of_another_namespace_is_no_owner(server: Server) -> None:
    """An owner is looked for in the namespace of the object."""
    other = f"{server.namespace}-other"
    await server.create("/api/v1/namespaces", {"metadata": {"name": other}})
    owner = await server.create(f"/api/v1/namespaces/{other}/configmaps", a_config_map("owner"))
    await server.create("core/secrets", {"metadata": {"name": "child", "ownerReferences": owned_by(owner)}})
    await gone(server, "core/secrets/child")
    await server.done("DELETE", f"/api/v1/namespaces/{other}")


# Many at once


async def test_a_collection_is_deleted_as_far_as_it_is_selected(server: Server) -> None:
    for number in range(4):
        side = {"side": "even" if number % 2 == 0 else "odd"}
        await server.create("core/secrets", {"metadata": {"name": f"s{number}", "labels": side}})
    reply = await server.ask("DELETE", "core/secrets?labelSelector=side%3Deven", {})
    assert (reply.code, reply.body["kind"], reply.names) == (200, "SecretList", ["s0", "s2"])
    assert (await server.list_("core/secrets")).names == ["s1", "s3"]
    await server.done("DELETE", "core/secrets?fieldSelector=metadata.name%3Ds3")
    assert (await server.list_("core/secrets")).names == ["s1"]


async def test_a_collection_of_pods_has_its_grace(server: Server) -> None:
    await server.create("core/pods", a_pod("bound", node="n1"))
    await server.create("core/pods", a_pod("free"))
    await server.done("DELETE", "core/pods", {"gracePeriodSeconds": 9})
    left = (await server.list_("core/pods")).body["items"]
    assert [(pod["metadata"]["name"], pod["metadata"]["deletionGracePeriodSeconds"]) for pod in left] == [("bound", 9)]
    await server.done("DELETE", "core/pods", {"gracePeriodSeconds": 0})


# Namespaces


async def test_a_namespace_takes_all_that_is_in_it_along(server: Server) -> None:
    name = f"{server.namespace}-x"
    path = f"/api/v1/namespaces/{name}"
    made = await server.create("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    await server.create(f"{path}/configmaps", a_config_map("held", finalizers=["a.b/c"]))
    await server.create(f"{path}/secrets", {"metadata": {"name": "a"}})
    deleted = await server.done("DELETE", path)
    assert deleted["status"]["phase"] == "Terminating"
    refused = await server.ask("POST", f"{path}/configmaps", a_config_map("late"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await gone(server, f"{path}/secrets/a")
    await becomes(server, f"{path}/configmaps/held", lambda each: each["metadata"].get("deletionTimestamp"))
    assert (await server.ask("GET", path)).code == 200
    await server.patch(f"{path}/configmaps/held", {"metadata": {"finalizers": None}})
    if server.name == "embedded":  # the real controller looks again after a minute or so
        await gone(server, path)


async def test_the_default_namespace_cannot_be_deleted(server: Server) -> None:
    reply = await server.ask("DELETE", "/api/v1/namespaces/default")
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == 'namespaces "default" is forbidden: this namespace may not be deleted'
