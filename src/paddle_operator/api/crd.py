"""The CustomResourceDefinition of a PaddleJob, for apiextensions v1 and for the v1beta1 of Kubernetes up to 1.15.

Both come from the same types and rules. What v1beta1 does not know (CEL, defaults, kinds of lists) is left out there.
"""

from typing import Any

from paddle_operator.api.paddlejob import GROUP, KIND, PLURAL, VERSION
from paddle_operator.api.paddlejob_policy_rules import LASTING_FIELDS, POLICY_BOUNDS
from paddle_operator.api.paddlejob_rules import LABEL, LONGEST_NAME, NAME_RULES, SPEC_RULES
from paddle_operator.api.rules import Rule
from paddle_operator.api.schema import Schema, struct_schema
from paddle_operator.api.spec import PaddleJobSpec
from paddle_operator.api.status import PaddleJobStatus

Manifest = dict[str, Any]

NAMES: Manifest = {
    "kind": KIND,
    "listKind": f"{KIND}List",
    "plural": PLURAL,
    "singular": "paddlejob",
    "shortNames": ["pdj"],
    # `kubectl delete all --all` would otherwise delete the pods, and the job would make them again.
    "categories": ["all"],
}
SUBRESOURCES: Manifest = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.worker.replicas",
        "statusReplicasPath": ".status.worker.replicas",
        "labelSelectorPath": ".status.selector",
    },
}
COLUMNS = (
    ("Status", "string", ".status.phase"),
    ("Mode", "string", ".status.mode"),
    ("Ready", "string", ".status.ready"),
    ("Started", "date", ".status.startTime"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
NEWER_THAN_1_15 = (
    "default",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)


def crd() -> Manifest:
    """For Kubernetes 1.30 or newer, which leaves a stored object alone in whose spec nothing changes."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": SUBRESOURCES,
        "additionalPrinterColumns": [{"name": n, "type": t, "jsonPath": path} for n, t, path in COLUMNS],
        "schema": {"openAPIV3Schema": whole_schema()},
    }
    return definition("v1", {"versions": [version]})


def crd_v1beta1() -> Manifest:
    """For Kubernetes 1.15 or older."""
    schema = plain(whole_schema())
    schema["properties"]["metadata"]["properties"] = {
        "name": {"type": "string", "pattern": LABEL, "maxLength": LONGEST_NAME}
    }
    for rule in SPEC_RULES:
        bound(schema, rule)
    parts = {
        "version": VERSION,
        "versions": [{"name": VERSION, "served": True, "storage": True}],
        "preserveUnknownFields": False,
        "subresources": SUBRESOURCES,
        "additionalPrinterColumns": [{"name": n, "type": t, "JSONPath": path} for n, t, path in COLUMNS],
        "validation": {"openAPIV3Schema": schema},
    }
    return definition("v1beta1", parts)


def definition(version: str, parts: Manifest) -> Manifest:
    return {
        "apiVersion": f"apiextensions.k8s.io/{version}",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "names": NAMES, "scope": "Namespaced", **parts},
    }


def whole_schema() -> Schema:
    spec = struct_schema(PaddleJobSpec)
    for path, bounds in POLICY_BOUNDS.items():
        part(spec, path).update(bounds)
    status = struct_schema(PaddleJobStatus)
    status["properties"]["conditions"] |= {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    whole = {
        "type": "object",
        "description": "One training job of PaddlePaddle.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [on_create(validation(rule)) for rule in NAME_RULES],
    }
    for rule in SPEC_RULES:
        part(whole, rule.place).setdefault("x-kubernetes-validations", []).append(validation(rule))
    spec["x-kubernetes-validations"] += [{"rule": each.cel, "message": each.sentence} for each in LASTING_FIELDS]
    return whole


def part(schema: Schema, path: str) -> Schema:
    """`rules.items.action` of a schema: a property, or what a list is of."""
    for name in path.split("."):
        schema = schema["items"] if name == "items" else schema["properties"][name]
    return schema


def validation(rule: Rule[Any]) -> Schema:
    found = {"rule": rule.cel, "message": f"{rule.field}: {rule.fix}", "messageExpression": rule.cel_message}
    within = rule.field.removeprefix(rule.place)
    if rule.place and within and "[" not in within:  # a place in a list cannot be told
        found["fieldPath"] = within
    return found


def on_create(found: Schema) -> Schema:
    """A name cannot change: who has a bad one from before must still be able to change, and to be deleted."""
    return found | {"rule": f"oldSelf.hasValue() || {found['rule']}", "optionalOldSelf": True}


def plain(schema: Schema) -> Schema:
    """Without what Kubernetes 1.15 does not know; a property may well be named like a keyword."""
    kept = {key: value for key, value in schema.items() if key not in NEWER_THAN_1_15}
    if "properties" in kept:
        kept["properties"] = {name: plain(value) for name, value in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = plain(kept[key])
    return kept


def bound(schema: Schema, rule: Rule[Any]) -> None:
    """Write the rule into the schema as a minimum and a maximum, if it is of that kind."""
    if rule.bounds is None:
        return
    low, high = rule.bounds
    part(schema, rule.field).update({"minimum": low} | ({} if high is None else {"maximum": high}))
