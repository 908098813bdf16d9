"""Small objects for the tests of the runtime."""

from paddle_operator.kube.objects import Key, Manifest, Object, Resource

POD_TEMPLATES = Resource("api/v1", "podtemplates", Object)  # the test bed serves these straight from etcd
NAMESPACES = Resource("api/v1", "namespaces", Object, namespaced=False)
NODES = Resource("api/v1", "nodes", Object, namespaced=False)


def a_config_map(key: Key, **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "data": data,
    }


def a_pod_template(key: Key, **labels: str) -> Manifest:
    containers = [{"name": "paddle", "image": "paddle"}]
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"namespace": key.namespace, "name": key.name, "labels": labels},
        "template": {"spec": {"containers": containers}},
    }


def a_pod(key: Key, *, node: str = "") -> Manifest:
    spec = {"containers": [{"name": "paddle", "image": "paddle"}], "terminationGracePeriodSeconds": 0}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "spec": spec,
    }
