"""Requests whose responses are compared literally: scenes of steps, each scene in a new namespace of each server."""

from dataclasses import dataclass, field

from tests.conformance.objects import make_config_map, make_job, make_pod
from tests.conformance.servers import JSON_PATCH, MERGE, STRATEGIC


@dataclass(frozen=True)
class Step:
    """One request; `id` names it in differences.toml."""

    id: str
    method: str
    path: str
    body: object = None
    content_type: str = "application/json"
    text: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


def post(id_: str, path: str, body: object) -> Step:
    return Step(id_, "POST", path, body)


def merge(id_: str, path: str, body: object) -> Step:
    return Step(id_, "PATCH", path, body, MERGE)


def delete(id_: str, path: str, body: object = None) -> Step:
    return Step(id_, "DELETE", path, body)


def get(id_: str, path: str) -> Step:
    return Step(id_, "GET", path)


BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
POD_WITH_TWO_CONTAINERS = make_pod("two") | {
    "spec": {"schedulerName": "nobody", "containers": [{"name": n, "image": "i"} for n in ("c", "d")]}
}

SCENES: dict[str, list[Step]] = {
    "create config maps": [
        post("create", "core/configmaps", make_config_map("a")),
        post("create again", "core/configmaps", make_config_map("a")),
        post("with a version", "core/configmaps", make_config_map("b", resourceVersion="5")),
        post("another namespace in the body", "core/configmaps", make_config_map("b", namespace="other")),
        post(
            "with fields of the server", "core/configmaps", make_config_map("b", uid="x", generation=7, selfLink="/x")
        ),
        post("without a name", "core/configmaps", {"metadata": {}}),
        post("of another kind", "core/configmaps", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "q"}}),
        post("of an unknown version", "core/configmaps", {"apiVersion": "v7", "kind": "ConfigMap"}),
        post("without a type", "core/configmaps", {"metadata": {"name": "untyped"}}),
        Step("no json", "POST", "core/configmaps", text=b"{not json"),
        Step("empty body", "POST", "core/configmaps", text=b""),
        Step("a list", "POST", "core/configmaps", []),
        Step("not in UTF-8", "POST", "core/configmaps", text=b'{"metadata": {"name": "a\xff"}}'),
        post("with a bad name", "core/configmaps", make_config_map("Bad_Name")),
        post("in no namespace", "/api/v1/namespaces/nowhere/configmaps", make_config_map("a")),
        post("in all namespaces", "/api/v1/configmaps", make_config_map("a")),
        post("with an unknown field", "core/configmaps", make_config_map("u") | {"foo": 1}),
        post("strictly", "core/configmaps?fieldValidation=Strict", make_config_map("v") | {"foo": 1}),
        post("with bogus validation", "core/configmaps?fieldValidation=Bogus", make_config_map("v")),
        post("as a dry run", "core/configmaps?dryRun=All", make_config_map("dry")),
        post("as another dry run", "core/configmaps?dryRun=Some", make_config_map("dry")),
        post("with an unknown parameter", "core/configmaps?bogus=1", make_config_map("w")),
        post("with a bad label", "core/configmaps", make_config_map("x", labels={"bad label": "x"})),
        post(
            "with a bad owner", "core/configmaps", make_config_map("x", ownerReferences=[{"kind": "Pod", "name": "p"}])
        ),
        post("with a bad finalizer", "core/configmaps", make_config_map("x", finalizers=["bad"])),
        post("with a number for a label", "core/configmaps", make_config_map("x", labels={"a": 1})),
        Step("as text", "POST", "core/configmaps", make_config_map("x"), "text/plain"),
        Step("as YAML", "POST", "core/configmaps", text=b"metadata: {name: yaml}", content_type="application/yaml"),
        post("sent to an object", "core/configmaps/a", make_config_map("a")),
    ],
    "update config maps": [
        post("create", "core/configmaps", make_config_map("a")),
        Step("put", "PUT", "core/configmaps/a", make_config_map("a") | {"data": {"x": "y"}}),
        Step("put a missing object", "PUT", "core/configmaps/nobody", make_config_map("nobody")),
        Step("put another name", "PUT", "core/configmaps/a", make_config_map("b")),
        Step("put another namespace", "PUT", "core/configmaps/a", make_config_map("a", namespace="other")),
        Step("put a stale version", "PUT", "core/configmaps/a", make_config_map("a", resourceVersion="1")),
        Step("put another uid", "PUT", "core/configmaps/a", make_config_map("a", uid="wrong")),
        Step("put a collection", "PUT", "core/configmaps", make_config_map("a")),
        merge("rename", "core/configmaps/a", {"metadata": {"name": "b"}}),
        merge("move", "core/configmaps/a", {"metadata": {"namespace": "b"}}),
        merge("give another uid", "core/configmaps/a", {"metadata": {"uid": "b"}}),
        merge("patch a stale version", "core/configmaps/a", {"metadata": {"resourceVersion": "1"}}),
        merge("patch a missing object", "core/configmaps/nobody", {}),
        merge("patch the kind", "core/configmaps/a", {"kind": "Pod"}),
        merge("patch an unknown field", "core/configmaps/a", {"foo": "x"}),
        merge("patch strictly", "core/configmaps/a?fieldValidation=Strict", {"foo": "x"}),
        merge("patch a wrong type", "core/configmaps/a", {"data": 3}),
        merge("patch with a list", "core/configmaps/a", [1]),
        Step(
            "failing test operation",
            "PATCH",
            "core/configmaps/a",
            [{"op": "test", "path": "/data/x", "value": "z"}],
            JSON_PATCH,
        ),
        Step("remove a missing key", "PATCH", "core/configmaps/a", [{"op": "remove", "path": "/data/z"}], JSON_PATCH),
        Step("json patch of no list", "PATCH", "core/configmaps/a", {"op": "add"}, JSON_PATCH),
        Step("strategic", "PATCH", "core/configmaps/a", {"data": {"n": "1"}}, STRATEGIC),
        Step("patch as json", "PATCH", "core/configmaps/a", {"data": {"n": "1"}}),
        get("the status of a config map", "core/configmaps/a/status"),
        Step(
            "copy a missing key",
            "PATCH",
            "core/configmaps/a",
            [{"op": "copy", "from": "/data/nothing", "path": "/data/m"}],
            JSON_PATCH,
        ),
    ],
    "unsupported requests": [
        get("an unknown kind", "core/bogus/a"),
        get("an unknown group", "/apis/foo.bar/v1/things"),
        get("an unknown path", "/bogus"),
        Step("a head", "HEAD", "core/configmaps"),
        Step("with a wrong token", "GET", "core/configmaps", headers={"Authorization": "Bearer wrong"}),
        Step("without a token", "GET", "core/configmaps", headers={"Authorization": ""}),
        Step("as HTML", "GET", "core/configmaps", headers={"Accept": "text/html"}),
        delete("all namespaces at once", "/api/v1/namespaces?labelSelector=nobody"),
    ],
    "delete config maps": [
        post("create", "core/configmaps", make_config_map("a")),
        post("create b", "core/configmaps", make_config_map("b")),
        delete("a missing object", "core/configmaps/nobody"),
        delete("another uid", "core/configmaps/a", {"preconditions": {"uid": "x"}}),
        delete("a stale version", "core/configmaps/a", {"preconditions": {"resourceVersion": "1"}}),
        delete("with a bogus policy", "core/configmaps/a", {"propagationPolicy": "Bogus"}),
        delete("as a dry run", "core/configmaps/a?dryRun=All"),
        delete("as a dry run by parameter beside a body", "core/configmaps/b?dryRun=All", {}),
        get("read after the dry run", "core/configmaps/b"),
        delete("by parameters", "core/configmaps/a?gracePeriodSeconds=5&propagationPolicy=Background"),
        delete("again", "core/configmaps/a"),
    ],
    "create and update jobs": [
        post("create", "jobs", make_job("a") | {"status": {"phase": "Running"}}),
        Step("put without a version", "PUT", "jobs/a", make_job("a")),
        merge("status through the object", "jobs/a", {"status": {"phase": "Failed"}}),
        merge("status", "jobs/a/status", {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}),
        merge("more replicas", "jobs/a", {"spec": {"worker": {"replicas": 2}}}),
        merge("an unknown field", "jobs/a", {"spec": {"worker": {"bogus": 1}}}),
        Step("strategic", "PATCH", "jobs/a", {}, STRATEGIC),
        post("with a finalizer without a domain", "jobs", make_job("f", finalizers=["finalizers.example.com"])),
        post("with a bad finalizer", "jobs", make_job("g", finalizers=["not a name"])),
        post("strictly", "jobs?fieldValidation=Strict", make_job("b") | {"foo": 1}),
        get("scale", "jobs/a/scale"),
        merge("scale up", "jobs/a/scale", {"spec": {"replicas": 5}}),
        merge("scale a missing job", "jobs/nobody/scale", {"spec": {"replicas": 5}}),
        Step("scale a stale version", "PUT", "jobs/a/scale", {"metadata": {"name": "a", "resourceVersion": "1"}}),
        get("a missing object", "jobs/nobody"),
        delete("another uid", "jobs/a", {"preconditions": {"uid": "x"}}),
        delete("delete", "jobs/a"),
    ],
    "pod lifecycle": [
        post("create", "core/pods", make_pod("a")),
        merge("status", "core/pods/a/status", {"status": {"phase": "Running", "podIP": "10.0.0.1"}}),
        merge("a node through the object", "core/pods/a", {"spec": {"nodeName": "n"}}),
        post("bind", "core/pods/a/binding", BINDING),
        post("bind again", "core/pods/a/binding", BINDING),
        post("bind without a target", "core/pods/a/binding", {"metadata": {"name": "a"}, "target": {}}),
        get("read after the binding", "core/pods/a"),
        get("the log of a wrong container", "core/pods/a/log?container=zz"),
        post("two containers", "core/pods", POD_WITH_TWO_CONTAINERS),
        get("the log of two containers", "core/pods/two/log"),
        get("the log of a pod without a node", "core/pods/two/log?container=c"),
        get("a negative tail", "core/pods/two/log?container=c&tailLines=-1"),
        get("a tail that is no number", "core/pods/two/log?container=c&tailLines=x"),
        delete("with grace", "core/pods/a", {"gracePeriodSeconds": 20}),
        merge("a late finalizer", "core/pods/a", {"metadata": {"finalizers": ["a.b/c"]}}),
        delete("at once", "core/pods/a", {"gracePeriodSeconds": 0}),
        delete("without a node", "core/pods/two"),
    ],
    "namespaces": [
        delete("the default one", "/api/v1/namespaces/default"),
        get("a missing object", "/api/v1/namespaces/nobody"),
        post("finalize", "/api/v1/namespaces/default/finalize", {}),
    ],
    "other kinds": [
        post("a headless service", "core/services", {"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}),
        delete("the service", "core/services/a"),
        post(
            "a node port",
            "core/services",
            {"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}},
        ),
        Step("a lease by PUT", "PUT", "leases/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}),
        Step("a lease without a version", "PUT", "leases/l", {"metadata": {"name": "l"}, "spec": {}}),
        post("a secret", "core/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
        post(
            "a claim",
            "core/persistentvolumeclaims",
            {
                "metadata": {"name": "c"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
        ),
    ],
}
