"""Requests whose answers are compared word by word: scenes of steps, each scene in a fresh namespace of each server."""

from dataclasses import dataclass, field

from tests.conformance.objects import a_config_map, a_job, a_pod
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


def posts(id_: str, path: str, body: object) -> Step:
    return Step(id_, "POST", path, body)


def merges(id_: str, path: str, body: object) -> Step:
    return Step(id_, "PATCH", path, body, MERGE)


def deletes(id_: str, path: str, body: object = None) -> Step:
    return Step(id_, "DELETE", path, body)


def reads(id_: str, path: str) -> Step:
    return Step(id_, "GET", path)


BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
TWO = a_pod("two") | {
    "spec": {"schedulerName": "nobody", "containers": [{"name": n, "image": "i"} for n in ("c", "d")]}
}

SCENES: dict[str, list[Step]] = {
    "config maps are made": [
        posts("made", "core/configmaps", a_config_map("a")),
        posts("made again", "core/configmaps", a_config_map("a")),
        posts("with a version", "core/configmaps", a_config_map("b", resourceVersion="5")),
        posts("elsewhere", "core/configmaps", a_config_map("b", namespace="other")),
        posts(
            "with what the server decides", "core/configmaps", a_config_map("b", uid="x", generation=7, selfLink="/x")
        ),
        posts("without a name", "core/configmaps", {"metadata": {}}),
        posts("of another kind", "core/configmaps", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "q"}}),
        posts("of an unknown version", "core/configmaps", {"apiVersion": "v7", "kind": "ConfigMap"}),
        posts("without a type", "core/configmaps", {"metadata": {"name": "untyped"}}),
        Step("no json", "POST", "core/configmaps", text=b"{not json"),
        Step("no text", "POST", "core/configmaps", text=b""),
        Step("a list", "POST", "core/configmaps", []),
        Step("not in UTF-8", "POST", "core/configmaps", text=b'{"metadata": {"name": "a\xff"}}'),
        posts("with a bad name", "core/configmaps", a_config_map("Bad_Name")),
        posts("in no namespace", "/api/v1/namespaces/nowhere/configmaps", a_config_map("a")),
        posts("in all namespaces", "/api/v1/configmaps", a_config_map("a")),
        posts("with an unknown field", "core/configmaps", a_config_map("u") | {"foo": 1}),
        posts("strictly", "core/configmaps?fieldValidation=Strict", a_config_map("v") | {"foo": 1}),
        posts("with bogus validation", "core/configmaps?fieldValidation=Bogus", a_config_map("v")),
        posts("as a dry run", "core/configmaps?dryRun=All", a_config_map("dry")),
        posts("as another dry run", "core/configmaps?dryRun=Some", a_config_map("dry")),
        posts("with an unknown parameter", "core/configmaps?bogus=1", a_config_map("w")),
        posts("with a bad label", "core/configmaps", a_config_map("x", labels={"bad label": "x"})),
        posts("with a bad owner", "core/configmaps", a_config_map("x", ownerReferences=[{"kind": "Pod", "name": "p"}])),
        posts("with a bad finalizer", "core/configmaps", a_config_map("x", finalizers=["bad"])),
        posts("with a number for a label", "core/configmaps", a_config_map("x", labels={"a": 1})),
        Step("as text", "POST", "core/configmaps", a_config_map("x"), "text/plain"),
        Step("as YAML", "POST", "core/configmaps", text=b"metadata: {name: yaml}", content_type="application/yaml"),
        posts("sent to an object", "core/configmaps/a", a_config_map("a")),
    ],
    "config maps are changed": [
        posts("made", "core/configmaps", a_config_map("a")),
        Step("put", "PUT", "core/configmaps/a", a_config_map("a") | {"data": {"x": "y"}}),
        Step("put what is not there", "PUT", "core/configmaps/nobody", a_config_map("nobody")),
        Step("put another name", "PUT", "core/configmaps/a", a_config_map("b")),
        Step("put another namespace", "PUT", "core/configmaps/a", a_config_map("a", namespace="other")),
        Step("put a stale version", "PUT", "core/configmaps/a", a_config_map("a", resourceVersion="1")),
        Step("put another uid", "PUT", "core/configmaps/a", a_config_map("a", uid="wrong")),
        Step("put a collection", "PUT", "core/configmaps", a_config_map("a")),
        merges("rename", "core/configmaps/a", {"metadata": {"name": "b"}}),
        merges("move", "core/configmaps/a", {"metadata": {"namespace": "b"}}),
        merges("give another uid", "core/configmaps/a", {"metadata": {"uid": "b"}}),
        merges("patch a stale version", "core/configmaps/a", {"metadata": {"resourceVersion": "1"}}),
        merges("patch what is not there", "core/configmaps/nobody", {}),
        merges("patch the kind", "core/configmaps/a", {"kind": "Pod"}),
        merges("patch an unknown field", "core/configmaps/a", {"foo": "x"}),
        merges("patch strictly", "core/configmaps/a?fieldValidation=Strict", {"foo": "x"}),
        merges("patch a wrong type", "core/configmaps/a", {"data": 3}),
        merges("patch with a list", "core/configmaps/a", [1]),
        Step(
            "test in vain", "PATCH", "core/configmaps/a", [{"op": "test", "path": "/data/x", "value": "z"}], JSON_PATCH
        ),
        Step("remove nothing", "PATCH", "core/configmaps/a", [{"op": "remove", "path": "/data/z"}], JSON_PATCH),
        Step("json patch of no list", "PATCH", "core/configmaps/a", {"op": "add"}, JSON_PATCH),
        Step("strategic", "PATCH", "core/configmaps/a", {"data": {"n": "1"}}, STRATEGIC),
        Step("patch as json", "PATCH", "core/configmaps/a", {"data": {"n": "1"}}),
        reads("the status of a config map", "core/configmaps/a/status"),
        Step(
            "copy nothing",
            "PATCH",
            "core/configmaps/a",
            [{"op": "copy", "from": "/data/nothing", "path": "/data/m"}],
            JSON_PATCH,
        ),
    ],
    "what is not served": [
        reads("an unknown kind", "core/bogus/a"),
        reads("an unknown group", "/apis/foo.bar/v1/things"),
        reads("an unknown path", "/bogus"),
        Step("a head", "HEAD", "core/configmaps"),
        Step("with a wrong token", "GET", "core/configmaps", headers={"Authorization": "Bearer wrong"}),
        Step("without a token", "GET", "core/configmaps", headers={"Authorization": ""}),
        Step("as HTML", "GET", "core/configmaps", headers={"Accept": "text/html"}),
        deletes("all namespaces at once", "/api/v1/namespaces?labelSelector=nobody"),
    ],
    "config maps are deleted": [
        posts("made", "core/configmaps", a_config_map("a")),
        posts("made b", "core/configmaps", a_config_map("b")),
        deletes("what is not there", "core/configmaps/nobody"),
        deletes("another uid", "core/configmaps/a", {"preconditions": {"uid": "x"}}),
        deletes("a stale version", "core/configmaps/a", {"preconditions": {"resourceVersion": "1"}}),
        deletes("with a bogus policy", "core/configmaps/a", {"propagationPolicy": "Bogus"}),
        deletes("as a dry run", "core/configmaps/a?dryRun=All"),
        deletes("as a dry run by parameter beside a body", "core/configmaps/b?dryRun=All", {}),
        reads("what the dry run left", "core/configmaps/b"),
        deletes("by parameters", "core/configmaps/a?gracePeriodSeconds=5&propagationPolicy=Background"),
        deletes("again", "core/configmaps/a"),
    ],
    "jobs are made and changed": [
        posts("made", "jobs", a_job("a") | {"status": {"phase": "Running"}}),
        Step("put without a version", "PUT", "jobs/a", a_job("a")),
        merges("status by the front door", "jobs/a", {"status": {"phase": "Failed"}}),
        merges("status", "jobs/a/status", {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}),
        merges("more replicas", "jobs/a", {"spec": {"worker": {"replicas": 2}}}),
        merges("an unknown field", "jobs/a", {"spec": {"worker": {"bogus": 1}}}),
        Step("strategic", "PATCH", "jobs/a", {}, STRATEGIC),
        posts("strictly", "jobs?fieldValidation=Strict", a_job("b") | {"foo": 1}),
        reads("scale", "jobs/a/scale"),
        merges("scaled", "jobs/a/scale", {"spec": {"replicas": 5}}),
        merges("scaled without a job", "jobs/nobody/scale", {"spec": {"replicas": 5}}),
        Step("scaled from a stale version", "PUT", "jobs/a/scale", {"metadata": {"name": "a", "resourceVersion": "1"}}),
        reads("nobody", "jobs/nobody"),
        deletes("another uid", "jobs/a", {"preconditions": {"uid": "x"}}),
        deletes("deleted", "jobs/a"),
    ],
    "pods live": [
        posts("made", "core/pods", a_pod("a")),
        merges("status", "core/pods/a/status", {"status": {"phase": "Running", "podIP": "10.0.0.1"}}),
        merges("a node by the front door", "core/pods/a", {"spec": {"nodeName": "n"}}),
        posts("bound", "core/pods/a/binding", BINDING),
        posts("bound again", "core/pods/a/binding", BINDING),
        posts("bound to nothing", "core/pods/a/binding", {"metadata": {"name": "a"}, "target": {}}),
        reads("as it is then", "core/pods/a"),
        reads("the log of a wrong container", "core/pods/a/log?container=zz"),
        posts("two containers", "core/pods", TWO),
        reads("the log of two containers", "core/pods/two/log"),
        reads("the log of a pod without a node", "core/pods/two/log?container=c"),
        reads("too short a tail", "core/pods/two/log?container=c&tailLines=-1"),
        reads("no tail", "core/pods/two/log?container=c&tailLines=x"),
        deletes("with grace", "core/pods/a", {"gracePeriodSeconds": 20}),
        merges("a late finalizer", "core/pods/a", {"metadata": {"finalizers": ["a.b/c"]}}),
        deletes("at once", "core/pods/a", {"gracePeriodSeconds": 0}),
        deletes("without a node", "core/pods/two"),
    ],
    "namespaces": [
        deletes("the default one", "/api/v1/namespaces/default"),
        reads("nobody", "/api/v1/namespaces/nobody"),
        posts("finalize", "/api/v1/namespaces/default/finalize", {}),
    ],
    "other kinds": [
        posts("a headless service", "core/services", {"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}),
        deletes("the service", "core/services/a"),
        posts(
            "a node port",
            "core/services",
            {"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}},
        ),
        Step("a lease by PUT", "PUT", "leases/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}),
        Step("a lease without a version", "PUT", "leases/l", {"metadata": {"name": "l"}, "spec": {}}),
        posts("a secret", "core/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
        posts(
            "a claim",
            "core/persistentvolumeclaims",
            {
                "metadata": {"name": "c"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
        ),
    ],
}
