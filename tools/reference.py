"""The API reference, docs/en/api_doc.md: prose from here, fields and rules from the types and rules of api/."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from paddle_operator.api.crd import crd, crd_v1beta1
from paddle_operator.api.decoding import is_struct
from paddle_operator.api.definition import KindDefinition
from paddle_operator.api.meta import Condition
from paddle_operator.api.rules import Rule
from paddle_operator.api.schema import Field, fields_of
from paddle_operator.api.spec import (
    ExitCodes,
    FailureRule,
    PaddleJobSpec,
    PodFailurePolicy,
    RoleSpec,
    SchedulingPolicy,
    SuccessPolicy,
    SuccessRule,
)
from paddle_operator.api.status import PaddleJobStatus, Reference, RoleStatus, RootFailure
from testbed.assets import kubernetes_version

CHINESE_TEXT = Path(__file__).parent / "reference.zh.txt"
EXAMPLE = Path(__file__).parent.parent / "deploy/examples/wide_and_deep.yaml"
SPEC = (
    PaddleJobSpec,
    RoleSpec,
    SchedulingPolicy,
    PodFailurePolicy,
    FailureRule,
    ExitCodes,
    SuccessPolicy,
    SuccessRule,
)
STATUS = (PaddleJobStatus, RoleStatus, Reference, Condition, RootFailure)
PLAIN = {bool: "true or false", int: "whole number", str: "text", datetime: "time", dict[str, Any]: "PodTemplateSpec"}

TEXT = """\
# API reference: PaddleJob

[简体中文](../zh_CN/api_doc.md)

You write a PaddleJob and want to know what a field means, what its default is, or why the API server refused a value.
This page is generated from the types and rules in `src/paddle_operator/api` by `python -m tools.generate`; `make lint`
fails if it is stale.

```yaml
{example}```

`kubectl get pdj` prints {columns}; `kubectl scale pdj/wide-ande-deep --replicas=3` changes the workers.

## What you write

{spec}
A `template` has every field of a pod in Kubernetes {kubernetes}, and no others: `kubectl apply` refuses a typo
inside it with its path. It differs from the template of a Deployment in three ways. `ephemeralContainers` do not exist,
since no new pod may have any. `metadata` has only annotations, finalizers, labels, name and namespace. To server-side
apply a template is one atomic value: applying a part of another manager's template is a conflict, not a merge.
Duplicate entries of keyed lists (`env` by name, `ports` by port and protocol, `volumes` by name) are refused.

## What is refused

A refusal names the field, the value and the fix. The API server evaluates the rules as CEL. The operator evaluates them
again with the same messages: an object that was stored before the CRD had rules gets a condition.

| field | message |
|---|---|
{rules}

Rules for `spec.worker` hold for `spec.ps` and `spec.heter` as well.

The schema refuses, with Kubernetes' own messages: a value that is not one of those listed above, a role without
`replicas` or `template`, a template without a container, a port outside 1 to 65535; in policies, a list that
is empty or too long, an exit code outside 1 to 255, and texts that do not have the form described above.

After the job was created:

{immutable}

Names are validated only at creation, since they cannot change: an older job with a longer name
can still be changed and deleted.

## What you read

{status}
## Which file for which Kubernetes

| file | for | size as JSON |
|---|---|---|
| `deploy/v1/crd.yaml` | 1.30 or newer | {v1:,} bytes |
| `deploy/v1beta1/crd.yaml` | 1.15 or older | {v1beta1:,} bytes |

Since 1.30, an API server tolerates a stored value that breaks a newer rule, as long as the value does not change.
The rules about names rely on this, and older API servers cannot evaluate them.

`kubectl apply` stores a copy in an annotation, which is limited to 262,144 bytes. Each of the three roles has the
schema of a pod template, so its fields have no descriptions in the CRD. `kubectl explain pod.spec` has them.

`deploy/v1` is tested on a real API server of Kubernetes {kubernetes}: every rule, every example, every YAML of the
documents. `deploy/v1beta1` cannot be: the API was removed in Kubernetes 1.22, and no server with it can be
built any more. Its schema is tested as part of a v1 definition on the real API server, and its form against the known
rules of Kubernetes 1.15. It has no CEL (added in 1.23), no defaults and no keyed
lists. There the API server refuses a number out of range, an unknown enum value and a name of more than {longest}
characters; the operator reports the rest in a condition.
"""


@dataclass(frozen=True)
class Page:
    """The reference of one kind: its prose, and the Structs that have a table, in order."""

    file: str
    text: str
    chinese_text: Path
    example: Path
    spec: tuple[type[msgspec.Struct], ...]
    status: tuple[type[msgspec.Struct], ...]


PAGES = {"PaddleJob": Page("api_doc.md", TEXT, CHINESE_TEXT, EXAMPLE, SPEC, STATUS)}


def reference(kind: KindDefinition[Any, Any], *, chinese: bool = False) -> str:
    """The page of one kind. In Chinese, descriptions and messages stay English, as the CRD has them."""
    page = PAGES[kind.kind]
    text = page.chinese_text.read_text() if chinese else page.text
    return text.format(
        example=page.example.read_text(),
        columns=", ".join(column.name for column in kind.columns),
        kubernetes=kubernetes_version().removeprefix("v").rpartition(".")[0],
        spec="\n".join(table(each) for each in page.spec),
        status="\n".join(table(each) for each in page.status),
        rules="\n".join(rule_rows(kind)),
        immutable="\n".join(f"- {each.message}." for each in kind.immutable),
        v1=size(crd(kind)),
        v1beta1=size(crd_v1beta1(kind)),
        longest=kind.name_schema.get("maxLength"),
    )


def table(kind: type[msgspec.Struct]) -> str:
    rows = "\n".join(row(field) for field in fields_of(kind))
    return f"### {kind.__name__}\n\n{kind.__doc__}\n\n| field | type | meaning |\n|---|---|---|\n{rows}\n"


def row(field: Field) -> str:
    needed = " (required)" if field.required else ""
    default = f" Default: {field.default}." if isinstance(field.default, Enum) else ""
    return f"| `{field.name}` | {describe_type(field.type)}{needed} | {field.description}{default} |"


def describe_type(kind: Any) -> str:
    if is_struct(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    if get_origin(kind) is tuple:
        return f"list of {describe_type(get_args(kind)[0])}"
    return PLAIN.get(kind, "map of quantities")


def rule_rows(kind: KindDefinition[Any, Any]) -> Iterator[str]:
    """All roles have the same rules, so only those of the workers are listed."""
    every: tuple[Rule[Any], ...] = (*kind.name_rules, *kind.rules)
    for rule in every:
        if not rule.field.startswith(("spec.ps.", "spec.heter.")):
            yield f"| `{rule.field}` | {re.sub('%[ds]', '…', rule.message)} |"


def size(manifest: dict[str, Any]) -> int:
    """In bytes as kubectl counts it: JSON without spaces."""
    return len(json.dumps(manifest, separators=(",", ":")))
