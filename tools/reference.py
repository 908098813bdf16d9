"""The API reference, docs/en/api_doc.md: prose from here, fields and rules from the types and rules of api/."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from paddle_operator.api.crd import COLUMNS, crd, crd_v1beta1
from paddle_operator.api.paddlejob_policy_rules import LASTING_FIELDS
from paddle_operator.api.paddlejob_rules import LONGEST_NAME, NAME_RULES, SPEC_RULES
from paddle_operator.api.reading import is_struct
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
from paddle_operator.api.status import Condition, PaddleJobStatus, Reference, RoleStatus, RootFailure
from testbed.assets import kubernetes_version

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
# PaddleJob: every field, and what is refused

You write a PaddleJob and ask what a field means, what counts where you leave it out, or why the API server said no.
All of this page is derived from the types and rules in `src/paddle_operator/api` by `python -m tools.generate`; a test
fails when it is stale.

```yaml
{example}```

`kubectl get pdj` prints {columns}; `kubectl scale pdj/wide-ande-deep --replicas=3` changes the workers.

## What you write

{spec}
A `template` has every field that a pod has in Kubernetes {kubernetes}, and nothing else: `kubectl apply` refuses a typo
inside it with its path. Three things differ from the templates of a Deployment: `ephemeralContainers` do not exist (no
new pod may have any), `metadata` has only annotations, finalizers, labels, name and namespace, and to server-side apply
a template is one value: who applies part of another's gets a conflict instead of a merge. Where a list is
keyed (`env` by name, `ports` by port and protocol, `volumes` by name), an entry that stands there twice is refused.

## What is refused

A refusal names the field, the value and the fix, in the same words from the API server, which has the rules as CEL,
and from the operator, which asks again: an object that was stored before there were rules gets a condition.

| field | the sentence |
|---|---|
{rules}

What stands there of `spec.worker` holds for `spec.ps` and `spec.heter` as well.

Beyond these, by the schema and in Kubernetes' own words: a value that is not one of those listed above, a role without
`replicas` or `template`, a template without a container, a port that is not from 1 to 65535; of policies, a list that
is empty or too long, an exit code that is not from 1 to 255, and texts of another form than described above.

After the job was made:

{lasting}

A name is looked at when the job is created and not again, since it cannot change: a job that has a longer name from
before can still be changed and deleted.

## What you read

{status}
## Which file for which Kubernetes

| file | for | size as JSON |
|---|---|---|
| `deploy/v1/crd.yaml` | 1.30 or newer | {v1:,} bytes |
| `deploy/v1beta1/crd.yaml` | 1.15 or older | {v1beta1:,} bytes |

From 1.30 on, an API server leaves alone what breaks a rule and was stored before it, as long as that does not change.
The rules about names are written with this in mind, and older API servers do not understand them.

`kubectl apply` keeps a copy in an annotation and stops at 262,144 bytes; three roles each carry the schema of a pod
template, so the fields inside it have no descriptions here. `kubectl explain pod.spec` has them.

`deploy/v1` is tested on a real API server of Kubernetes {kubernetes}: every rule, every example, every YAML of the
documents. For `deploy/v1beta1` there is none: the API was removed in Kubernetes 1.22, and nothing that serves it can be
built any more. Its schema is tested as part of a v1 definition on the real API server, and its form against the rules
that Kubernetes 1.15 had for it, as far as we know them. It has no CEL (that came in 1.23), no defaults and no keyed
lists: there a number out of range, a wrong word and a name of more than {longest} characters are refused by the API
server, and the rest is told by the operator in a condition.
"""


def reference() -> str:
    return TEXT.format(
        example=EXAMPLE.read_text(),
        columns=", ".join(name for name, _, _ in COLUMNS),
        kubernetes=kubernetes_version().removeprefix("v").rpartition(".")[0],
        spec="\n".join(table(kind) for kind in SPEC),
        status="\n".join(table(kind) for kind in STATUS),
        rules="\n".join(rule_rows()),
        lasting="\n".join(f"- {each.sentence}." for each in LASTING_FIELDS),
        v1=size(crd()),
        v1beta1=size(crd_v1beta1()),
        longest=LONGEST_NAME,
    )


def table(kind: type[msgspec.Struct]) -> str:
    rows = "\n".join(row(field) for field in fields_of(kind))
    return f"### {kind.__name__}\n\n{kind.__doc__}\n\n| field | type | meaning |\n|---|---|---|\n{rows}\n"


def row(field: Field) -> str:
    needed = " (must be there)" if field.required else ""
    default = f" Left out, it is {field.default}." if isinstance(field.default, Enum) else ""
    return f"| `{field.name}` | {in_words(field.type)}{needed} | {field.description}{default} |"


def in_words(kind: Any) -> str:
    if is_struct(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    if get_origin(kind) is tuple:
        return f"list of {in_words(get_args(kind)[0])}"
    return PLAIN.get(kind, "map of quantities")


def rule_rows() -> Iterator[str]:
    """The roles' rules are the same, so that of the workers stands for all."""
    every: tuple[Rule[Any], ...] = (*NAME_RULES, *SPEC_RULES)
    for rule in every:
        if not rule.field.startswith(("spec.ps.", "spec.heter.")):
            yield f"| `{rule.field}` | {re.sub('%[ds]', '…', rule.sentence)} |"


def size(manifest: dict[str, Any]) -> int:
    """As kubectl counts it: JSON without spaces."""
    return len(json.dumps(manifest, separators=(",", ":")))
