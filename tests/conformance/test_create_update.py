"""Create, update and patch: names, versions, immutable fields, status and scale."""

import asyncio

import pytest

from tests.conformance.objects import make_config_map, make_job, make_pod
from tests.conformance.servers import JSON_PATCH, MERGE, STRATEGIC, Server


async def test_create_sets_standard_metadata(server: Server) -> None:
    created = await server.create(
        "core/configmaps", make_config_map("a", uid="given", creationTimestamp="2020-01-01T00:00:00Z")
    )
    metadata = created["metadata"]
    assert (created["kind"], created["apiVersion"], created["data"]) == ("ConfigMap", "v1", {"a": "b"})
    assert (metadata["name"], metadata["namespace"]) == ("a", server.namespace)
    assert len(metadata["uid"]) == 36
    assert not metadata["creationTimestamp"].startswith("2020")
    assert metadata["resourceVersion"].isdigit()
    assert "generation" not in metadata
    assert (await server.create("core/pods", make_pod("a")))["metadata"]["generation"] == 1
    assert (await server.create("jobs", make_job("a")))["metadata"]["generation"] == 1
    again = await server.read("core/configmaps/a")
    again["metadata"].pop("managedFields", None)
    metadata.pop("managedFields", None)
    assert again == created


async def test_resource_version_increases_with_every_write(server: Server) -> None:
    one = await server.create("core/configmaps", make_config_map("a"))
    two = await server.create("core/secrets", {"metadata": {"name": "a"}})
    three = await server.patch("core/configmaps/a", {"data": {"x": "y"}})
    versions = [int(each["metadata"]["resourceVersion"]) for each in (one, two, three)]
    assert versions == sorted(set(versions))


async def test_create_of_an_existing_name_gets_409(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    reply = await server.request("POST", "core/configmaps", make_config_map("a"))
    assert (reply.code, reply.reason, reply.message) == (409, "AlreadyExists", 'configmaps "a" already exists')
    replies = await asyncio.gather(*(server.request("POST", "jobs", make_job("b")) for _ in range(5)))
    assert sorted(reply.code for reply in replies) == [201, 409, 409, 409, 409]


async def test_generate_name(server: Server) -> None:
    base = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}}
    names = {(await server.create("core/configmaps", base))["metadata"]["name"] for _ in range(10)}
    assert len(names) == 10
    assert all(name.startswith("some-") and len(name) == len("some-") + 5 for name in names)
    long = {"metadata": {"generateName": "x" * 100}}
    assert len((await server.create("core/configmaps", long))["metadata"]["name"]) == 63


@pytest.mark.parametrize(
    ("manifest", "code", "reason"),
    [
        ({"metadata": {}}, 422, "Invalid"),
        ({"metadata": {"name": "Bad_Name"}}, 422, "Invalid"),
        ({"metadata": {"name": "a", "namespace": "other"}}, 400, "BadRequest"),
        ({"metadata": {"name": "a", "labels": {"bad label": "x"}}}, 422, "Invalid"),
        ({"metadata": {"name": "a", "finalizers": ["bad"]}}, 422, "Invalid"),
        ({"metadata": {"name": "a", "labels": {"a": 1}}}, 400, "BadRequest"),
        ({"metadata": {"name": "a"}, "data": {"a": 1}}, 400, "BadRequest"),
        ({"metadata": {"name": "a"}, "kind": "Pod", "apiVersion": "v1"}, 400, "BadRequest"),
        ({"metadata": {"name": "a"}, "kind": "ConfigMap", "apiVersion": "v2"}, 400, "BadRequest"),
        ({"metadata": []}, 400, "BadRequest"),
        ([], 400, "BadRequest"),
    ],
    ids=str,
)
async def test_invalid_object_is_rejected(server: Server, manifest: object, code: int, reason: str) -> None:
    reply = await server.request("POST", "core/configmaps", manifest)
    assert (reply.code, reply.reason) == (code, reason)


async def test_body_that_is_no_json_gets_400(server: Server) -> None:
    for text in (b"{not json", b"", b"[1"):
        assert (await server.request("POST", "core/configmaps", text=text)).code == 400
    assert (
        await server.request("POST", "core/configmaps", make_config_map("a"), content_type="text/plain")
    ).code == 415


async def test_create_in_a_missing_namespace_gets_404(server: Server) -> None:
    reply = await server.request("POST", "/api/v1/namespaces/nowhere/configmaps", make_config_map("a"))
    assert (reply.code, reply.reason, reply.message) == (404, "NotFound", 'namespaces "nowhere" not found')
    assert (await server.request("POST", "/api/v1/configmaps", make_config_map("a"))).code == 405


@pytest.mark.parametrize(("path", "manifest"), [("core/configmaps", make_config_map("a")), ("jobs", make_job("a"))])
async def test_field_validation_of_unknown_fields(server: Server, path: str, manifest: dict[str, object]) -> None:
    odd = manifest | {"foo": 1}
    strict = await server.request("POST", f"{path}?fieldValidation=Strict", odd)
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "foo"' in strict.message
    assert (await server.request("POST", f"{path}?fieldValidation=Bogus", odd)).code == 422
    warned = await server.request("POST", path, odd)
    assert (warned.code, "foo" in warned.body) == (201, False)
    assert warned.headers.getall("Warning") == ['299 - "unknown field \\"foo\\""']
    silent = await server.request("PATCH", f"{path}/a?fieldValidation=Ignore", {"foo": 1}, content_type=MERGE)
    assert (silent.code, "Warning" in silent.headers) == (200, False)
    patched = await server.request("PATCH", f"{path}/a", {"foo": 1}, content_type=MERGE)
    assert (patched.code, "Warning" in patched.headers) == (200, True)
    assert patched.body["metadata"]["resourceVersion"] == warned.body["metadata"]["resourceVersion"]


async def test_dry_run_stores_nothing(server: Server) -> None:
    reply = await server.request("POST", "core/configmaps?dryRun=All", make_config_map("a"))
    assert (reply.code, reply.body["metadata"]["name"]) == (201, "a")
    assert reply.body["metadata"]["uid"]
    assert (await server.request("GET", "core/configmaps/a")).code == 404
    assert (await server.request("POST", "core/configmaps?dryRun=Some", make_config_map("a"))).code == 422
    created = await server.create("core/configmaps", make_config_map("a"))
    assert (await server.request("POST", "core/configmaps?dryRun=All", make_config_map("a"))).code == 409
    patched = await server.request_json(
        "PATCH", "core/configmaps/a?dryRun=All", {"data": {"a": "c"}}, content_type=MERGE
    )
    assert patched["data"] == {"a": "c"}
    assert (await server.request("DELETE", "core/configmaps/a?dryRun=All")).code == 200
    assert (await server.read("core/configmaps/a"))["metadata"]["resourceVersion"] == created["metadata"][
        "resourceVersion"
    ]


# Updates


async def test_update_of_a_stale_version_gets_409(server: Server) -> None:
    for path, manifest in (
        ("core/configmaps", make_config_map("a")),
        ("jobs", make_job("a")),
        ("core/pods", make_pod("a")),
    ):
        created = await server.create(path, manifest)
        created["metadata"]["labels"] = {"first": "yes"}
        newer = await server.request_json("PUT", f"{path}/a", created)
        created["metadata"]["labels"] = {"second": "yes"}
        reply = await server.request("PUT", f"{path}/a", created)
        assert (reply.code, reply.reason) == (409, "Conflict")
        assert reply.message.endswith(
            "the object has been modified; please apply your changes to the latest version and try again"
        )
        assert (await server.read(f"{path}/a"))["metadata"]["labels"] == newer["metadata"]["labels"] == {"first": "yes"}


async def test_update_without_resource_version(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    assert (await server.request("PUT", "core/configmaps/a", make_config_map("a") | {"data": {"x": "y"}})).code == 200
    await server.create("jobs", make_job("a"))
    reply = await server.request("PUT", "jobs/a", make_job("a"))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_create_on_update_depends_on_the_kind(server: Server) -> None:
    assert (await server.request("PUT", "core/configmaps/a", make_config_map("a"))).code == 404
    assert (await server.request("PUT", "leases/a", {"metadata": {"name": "a"}, "spec": {}})).code == 201
    service = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    assert (await server.request("PUT", "core/services/a", service)).code == 201


async def test_unchanged_write_keeps_the_resource_version(server: Server) -> None:
    for path, manifest in (
        ("core/configmaps", make_config_map("a")),
        ("jobs", make_job("a")),
        ("core/pods", make_pod("a")),
    ):
        created = await server.create(path, manifest)
        version = created["metadata"]["resourceVersion"]
        assert (await server.request_json("PUT", f"{path}/a", created))["metadata"]["resourceVersion"] == version
        assert (await server.patch(f"{path}/a", {}))["metadata"]["resourceVersion"] == version
        assert (await server.patch(f"{path}/a", {"metadata": {"labels": {}}}))["metadata"]["resourceVersion"] == version


async def test_identity_is_immutable(server: Server) -> None:
    created = (await server.create("core/configmaps", make_config_map("a")))["metadata"]

    async def refused(change: object, content_type: str = MERGE) -> tuple[int, str]:
        reply = await server.request("PATCH", "core/configmaps/a", {"metadata": change}, content_type=content_type)
        return reply.code, reply.reason

    assert await refused({"name": "b"}) == (400, "BadRequest")
    assert await refused({"namespace": "b"}) == (400, "BadRequest")
    assert await refused({"uid": "b"}) == (422, "Invalid")
    assert await refused({"deletionTimestamp": "2030-01-01T00:00:00Z"}) == (422, "Invalid")
    assert await refused({"resourceVersion": "1"}) == (409, "Conflict")
    kept = await server.patch("core/configmaps/a", {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}})
    assert kept["metadata"]["creationTimestamp"] == created["creationTimestamp"]
    put = await server.request("PUT", "core/configmaps/a", make_config_map("a", uid="wrong"))
    assert (put.code, put.reason) == (409, "Conflict")
    assert (await server.request("PUT", "core/configmaps/a", make_config_map("b"))).code == 400
    same = {"uid": created["uid"], "resourceVersion": created["resourceVersion"], "labels": {"x": "y"}}
    assert (await server.patch("core/configmaps/a", {"metadata": same}))["metadata"]["labels"] == {"x": "y"}


# Patches


async def test_merge_patch(server: Server) -> None:
    await server.create(
        "core/configmaps", make_config_map("a", labels={"x": "1", "y": "2"}, finalizers=["a.b/c", "d.e/f"])
    )
    change = {"metadata": {"labels": {"x": None, "z": "3"}, "finalizers": ["g.h/i"]}, "data": {"a": None, "b": "c"}}
    done = await server.patch("core/configmaps/a", change)
    assert done["metadata"]["labels"] == {"y": "2", "z": "3"}
    assert done["metadata"]["finalizers"] == ["g.h/i"]
    assert done["data"] == {"b": "c"}
    await server.patch("core/configmaps/a", {"metadata": {"finalizers": None}})


async def test_json_patch_is_atomic(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a", labels={"x": "1"}))
    operations = [
        {"op": "test", "path": "/data/a", "value": "b"},
        {"op": "add", "path": "/data/c~1d", "value": "e"},
        {"op": "replace", "path": "/metadata/labels/x", "value": "2"},
        {"op": "copy", "from": "/data/a", "path": "/data/f"},
        {"op": "move", "from": "/data/a", "path": "/data/g"},
    ]
    refused = await server.request("PATCH", "core/configmaps/a", operations, content_type=JSON_PATCH)
    assert refused.code == 422, "a key with a slash is no key of a ConfigMap"
    operations[1]["path"] = "/data/c"
    done = await server.patch("core/configmaps/a", operations, JSON_PATCH)
    assert done["data"] == {"c": "e", "f": "b", "g": "b"}
    assert done["metadata"]["labels"] == {"x": "2"}
    failed = [{"op": "remove", "path": "/data/c"}, {"op": "test", "path": "/data/f", "value": "wrong"}]
    reply = await server.request("PATCH", "core/configmaps/a", failed, content_type=JSON_PATCH)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert (await server.read("core/configmaps/a"))["data"] == {"c": "e", "f": "b", "g": "b"}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "remove", "path": "/data/nothing"}], 422),
        ([{"op": "replace", "path": "/data/nothing", "value": "x"}], 200),
        ([{"op": "replace", "path": "/nothing/at/all", "value": "x"}], 422),
        ([{"op": "bogus", "path": "/data/a"}], 422),
        ([{"op": "add", "path": "/data/x/y/z", "value": "1"}], 422),
        ([{"op": "add", "path": "/metadata/finalizers/5", "value": "a.b/c"}], 422),
        ({"op": "add", "path": "/data/x", "value": "1"}, 400),
        ([1], 400),
        ([], 200),
        ([{"op": "test", "path": "/data/nothing", "value": None}], 200),
        ([{"op": "add", "path": "/data", "value": {"z": "1"}}], 200),
    ],
    ids=str,
)
async def test_inapplicable_json_patch_is_rejected(server: Server, operations: object, code: int) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    reply = await server.request("PATCH", "core/configmaps/a", operations, content_type=JSON_PATCH)
    assert reply.code == code, reply.text


async def test_patch_types_of_kinds(server: Server) -> None:
    await server.create("core/pods", make_pod("a"))
    await server.create("jobs", make_job("a"))
    done = await server.patch("core/pods/a", {"metadata": {"labels": {"x": "y"}}}, STRATEGIC)
    assert done["metadata"]["labels"] == {"x": "y"}
    assert (await server.request("PATCH", "jobs/a", {}, content_type=STRATEGIC)).code == 415
    assert (await server.request("PATCH", "jobs/a", {}, content_type="application/json")).code == 415
    assert (await server.request("PATCH", "jobs/a", [], content_type=MERGE)).code == 400
    assert (await server.request("PATCH", "jobs/nobody", {}, content_type=MERGE)).code == 404


async def test_strategic_merge_patch_merges_containers_by_name(server: Server) -> None:
    await server.create("core/pods", make_pod("a"))
    change = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    done = await server.patch("core/pods/a", change, STRATEGIC)
    assert [(each["name"], each["image"]) for each in done["spec"]["containers"]] == [("main", "other")]
    assert done["spec"]["containers"][0]["terminationMessagePath"] == "/dev/termination-log"
    assert done["metadata"]["generation"] == 2


# Status and scale


@pytest.mark.parametrize(
    ("path", "manifest"), [("core/pods", make_pod("a")), ("jobs", make_job("a"))], ids=["pods", "jobs"]
)
async def test_spec_and_status_are_written_separately(server: Server, path: str, manifest: dict[str, object]) -> None:
    created = await server.create(path, manifest | {"status": {"phase": "Running"}})
    assert (created.get("status") or {}).get("phase") != "Running", "create ignores the status"
    done = await server.patch(f"{path}/a", {"status": {"phase": "Failed"}})
    assert done["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    done = await server.patch(
        f"{path}/a/status", {"status": {"phase": "Running"}, "spec": {"activeDeadlineSeconds": 5}}
    )
    assert done["status"]["phase"] == "Running"
    assert done["spec"] == created["spec"]
    assert done["metadata"]["generation"] == 1
    done["status"]["phase"] = "Failed"
    assert (await server.request_json("PUT", f"{path}/a/status", done))["status"]["phase"] == "Failed"
    assert (await server.read(f"{path}/a/status"))["status"]["phase"] == "Failed"
    reply = await server.request("PUT", f"{path}/a/status", done)
    assert (reply.code, reply.reason) == (409, "Conflict")


async def test_status_write_may_change_labels_of_pods_only(server: Server) -> None:
    await server.create("core/pods", make_pod("a"))
    await server.create("jobs", make_job("a"))
    change = {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}}
    assert (await server.patch("core/pods/a/status", change))["metadata"]["labels"] == {"x": "y"}
    assert "labels" not in (await server.patch("jobs/a/status", change))["metadata"]


async def test_kind_without_status_has_no_status_subresource(server: Server) -> None:
    await server.create("core/configmaps", make_config_map("a"))
    assert (await server.request("GET", "core/configmaps/a/status")).code == 404
    assert (await server.request("GET", "core/configmaps/a/scale")).code == 404


async def test_generation_increases_with_spec_changes(server: Server) -> None:
    await server.create("jobs", make_job("a"))

    async def generation(path: str, change: object) -> int:
        return int((await server.patch(path, change))["metadata"]["generation"])

    assert await generation("jobs/a", {"metadata": {"labels": {"x": "y"}}}) == 1
    assert await generation("jobs/a/status", {"status": {"phase": "Running"}}) == 1
    assert await generation("jobs/a", {"spec": {"worker": {"replicas": 3}}}) == 2
    assert await generation("jobs/a", {"spec": {"worker": {"replicas": 3}}}) == 2
    assert await generation("jobs/a", {"metadata": {"generation": 9}}) == 2


async def test_scale_of_a_job(server: Server) -> None:
    created = await server.create("jobs", make_job("a"))
    scale = await server.read("jobs/a/scale")
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 1})
    assert scale["metadata"]["uid"] == created["metadata"]["uid"]
    assert (await server.patch("jobs/a/scale", {"spec": {"replicas": 2}}))["spec"]["replicas"] == 2
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    assert (await server.patch("jobs/a/scale", operations, JSON_PATCH))["spec"]["replicas"] == 3
    scale["spec"]["replicas"] = 4
    stale = await server.request("PUT", "jobs/a/scale", scale)
    assert (stale.code, stale.reason) == (409, "Conflict")
    del scale["metadata"]["resourceVersion"]
    assert (await server.request_json("PUT", "jobs/a/scale", scale))["spec"]["replicas"] == 4
    scale["spec"]["replicas"] = -1
    assert (await server.request("PUT", "jobs/a/scale", scale)).code == 422
    job = await server.read("jobs/a")
    assert job["spec"]["worker"]["replicas"] == 4
    assert job["metadata"]["generation"] == 4
    assert (await server.request("GET", "jobs/nobody/scale")).code == 404


async def test_pod_is_bound_once(server: Server) -> None:
    await server.create("core/pods", make_pod("a"))

    def to(node: str) -> dict[str, object]:
        return {"metadata": {"name": "a"}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}

    reply = await server.request("POST", "core/pods/a/binding", to("n1"))
    assert (reply.code, reply.body["status"]) == (201, "Success")
    pod = await server.read("core/pods/a")
    assert pod["spec"]["nodeName"] == "n1"
    assert [(each["type"], each["status"]) for each in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    again = await server.request("POST", "core/pods/a/binding", to("n2"))
    assert (again.code, again.reason) == (409, "Conflict")
    assert again.message.endswith('pod a is already assigned to node "n1"')
    assert (
        await server.request("POST", "core/pods/nobody/binding", to("n1") | {"metadata": {"name": "nobody"}})
    ).code == 404
    await server.create("core/pods", make_pod("b"))
    assert (await server.request("POST", "core/pods/b/binding", to("n1"))).code == 400


async def test_pod_spec_is_mostly_immutable(server: Server) -> None:
    await server.create("core/pods", make_pod("a"))
    assert (await server.patch("core/pods/a", {"spec": {"activeDeadlineSeconds": 5}}))["metadata"]["generation"] == 2
    for change in ({"nodeName": "n"}, {"hostname": "x"}, {"restartPolicy": "Never"}):
        reply = await server.request("PATCH", "core/pods/a", {"spec": change}, content_type=MERGE)
        assert (reply.code, reply.reason) == (422, "Invalid"), change


async def test_service_gets_a_cluster_ip_unless_headless(server: Server) -> None:
    created = await server.create("core/services", {"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}})
    assert (created["spec"]["clusterIP"], created["spec"]["clusterIPs"]) == ("None", ["None"])
    created = await server.create("core/services", {"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}})
    address = created["spec"]["clusterIP"]
    assert address.startswith("10.96.")
    other = await server.create("core/services", {"metadata": {"name": "c"}, "spec": {"ports": [{"port": 80}]}})
    assert other["spec"]["clusterIP"] != address
    put = {"metadata": {"name": "b"}, "spec": {"ports": [{"port": 81}]}}
    assert (await server.request_json("PUT", "core/services/b", put))["spec"]["clusterIP"] == address
    moved = await server.request("PATCH", "core/services/b", {"spec": {"clusterIP": "10.96.1.1"}}, content_type=MERGE)
    assert moved.code == 422
