"""The schema of a PodTemplateSpec: Kubernetes' own, as tools/pod_template_schema.py got it, and what we ask beyond."""

import json
from importlib.resources import files
from typing import Any

from paddle_operator.api.paddlejob_rules import HIGHEST_PORT, LOWEST_PORT

Schema = dict[str, Any]


def pod_template() -> Schema:
    """With a spec, with a container at least, and with ports that exist.

    It is one value to server-side apply: with each of its fields noted, of a job of two roles and twenty variables, an
    API server spends a fifth more on every write of that job, a status among them.
    """
    schema = kubernetes_own()
    schema["x-kubernetes-map-type"] = "atomic"
    schema["required"] = ["spec"]
    pod = schema["properties"]["spec"]["properties"]
    pod["containers"]["minItems"] = 1
    for kind in ("containers", "initContainers"):
        port = pod[kind]["items"]["properties"]["ports"]["items"]["properties"]
        port["containerPort"] |= {"minimum": LOWEST_PORT, "maximum": HIGHEST_PORT}
        port["hostPort"] |= {"minimum": 0, "maximum": HIGHEST_PORT}  # 0 stands for none
    return schema


def quantity() -> Schema:
    container = kubernetes_own()["properties"]["spec"]["properties"]["containers"]["items"]
    found: Schema = container["properties"]["resources"]["properties"]["limits"]["additionalProperties"]
    return found


def quantities() -> Schema:
    """A map such as requests and limits."""
    return {"type": "object", "additionalProperties": quantity()}


def kubernetes_own() -> Schema:
    text = files("paddle_operator.api").joinpath("pod_template_schema.json").read_text()
    schema: Schema = json.loads(text)
    return schema
