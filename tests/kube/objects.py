"""Resources and manifests for the tests of kube/."""

from paddle_operator.kube.objects import Key, Manifest, Object, Resource

POD_TEMPLATES = Resource("api/v1", "podtemplates", Object)  # served without a watch cache in the test bed
NAMESPACES = Resource("api/v1", "namespaces", Object, namespaced=False)
NODES = Resource("api/v1", "nodes", Object, namespaced=False)


def make_config_map(key: Key, **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "data": data,
    }


def make_pod_template(key: Key, **labels: str) -> Manifest:
    containers = [{"name": "paddle", "image": "paddle"}]
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"namespace": key.namespace, "name": key.name, "labels": labels},
        "template": {"spec": {"containers": containers}},
    }


def make_pod(key: Key, *, node: str = "") -> Manifest:
    spec = {"containers": [{"name": "paddle", "image": "paddle"}], "terminationGracePeriodSeconds": 0}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "spec": spec,
    }
