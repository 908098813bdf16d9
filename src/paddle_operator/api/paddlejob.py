"""The kind PaddleJob: its definition, and how its spec and status are decoded."""

from collections.abc import Iterator
from typing import Any

import msgspec

from paddle_operator.api import decoding
from paddle_operator.api.decoding import InvalidSpec
from paddle_operator.api.definition import KindDefinition, PrinterColumn, ScalePaths
from paddle_operator.api.meta import Condition
from paddle_operator.api.paddlejob_policy_rules import (
    IMMUTABLE_FIELDS,
    POLICY_BOUNDS,
    is_manager,
    policy_problems,
    success_indexes,
    success_rule,
)
from paddle_operator.api.paddlejob_rules import (
    LABEL_PATTERN,
    MAX_NAME_LENGTH,
    NAME_RULES,
    SPEC_RULES,
    templates_problems,
)
from paddle_operator.api.pod_template import pod_template_schema, quantities_schema, validate_template
from paddle_operator.api.spec import (
    OLD_SPELLINGS,
    CleanPodPolicy,
    ExitCodeOperator,
    FailureAction,
    Intranet,
    Mode,
    PaddleJobSpec,
    Phase,
    Role,
    RoleSpec,
    SchedulingPolicy,
)
from paddle_operator.api.status import PaddleJobStatus, Reference, RoleStatus, RootFailure

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "MANAGER",
    "PADDLE_JOB",
    "PLURAL",
    "VERSION",
    "CleanPodPolicy",
    "Condition",
    "ExitCodeOperator",
    "FailureAction",
    "Intranet",
    "InvalidSpec",
    "Mode",
    "PaddleJobSpec",
    "PaddleJobStatus",
    "Phase",
    "Reference",
    "Role",
    "RoleSpec",
    "RoleStatus",
    "RootFailure",
    "SchedulingPolicy",
    "manager_of",
    "read_spec",
    "read_status",
    "success_indexes",
    "success_rule",
]

GROUP = "batch.paddlepaddle.org"
VERSION = "v1"
KIND = "PaddleJob"
PLURAL = "paddlejobs"
MANAGER = f"{GROUP}/paddle-operator"  # this operator, in spec.managedBy

_PHASES, _MODES = frozenset(("", *Phase)), frozenset(("", *Mode))


def _template_type_problems(spec: PaddleJobSpec) -> Iterator[str]:
    for role, part in spec.roles.items():
        yield from validate_template(part.template, f"spec.{role}.template")


PADDLE_JOB = KindDefinition(
    group=GROUP,
    version=VERSION,
    kind=KIND,
    plural=PLURAL,
    description="One training job of PaddlePaddle.",
    spec=PaddleJobSpec,
    status=PaddleJobStatus,
    short_names=("pdj",),
    # `kubectl delete all --all` would otherwise delete the pods, and the operator would recreate them.
    categories=("all",),
    columns=(
        PrinterColumn("Status", "string", ".status.phase"),
        PrinterColumn("Mode", "string", ".status.mode"),
        PrinterColumn("Ready", "string", ".status.ready"),
        PrinterColumn("Started", "date", ".status.startTime"),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
    ),
    rules=SPEC_RULES,
    immutable=IMMUTABLE_FIELDS,
    name_rules=NAME_RULES,
    name_schema={"pattern": LABEL_PATTERN, "maxLength": MAX_NAME_LENGTH},
    checks=(policy_problems, templates_problems, _template_type_problems),
    bounds=POLICY_BOUNDS,
    type_schemas={dict[str, Any]: pod_template_schema, dict[str, int | float | str]: quantities_schema},
    old_spellings=OLD_SPELLINGS,
    scale=ScalePaths(".spec.worker.replicas", ".status.worker.replicas", ".status.selector"),
)
API_VERSION = PADDLE_JOB.api_version


def read_spec(raw: bytes, name: str | None = None) -> PaddleJobSpec:
    """The spec, checked together with the job's name if there is one. Raises InvalidSpec with all problems."""
    return decoding.read_spec(PADDLE_JOB, raw, name)


def manager_of(raw: bytes) -> str:
    """The manager of a job whose spec is invalid; empty where that cannot be read either."""
    written = msgspec.json.decode(raw)
    manager = written.get("managedBy") if isinstance(written, dict) else None
    return manager if isinstance(manager, str) and is_manager(manager) else ""


def read_status(raw: bytes) -> PaddleJobStatus:
    """The status as far as it can be read; anything else, also an unknown phase, counts as absent."""
    status = decoding.read_status(PADDLE_JOB, raw)
    if status.phase in _PHASES and status.mode in _MODES:
        return status
    return msgspec.structs.replace(
        status,
        phase=status.phase if status.phase in _PHASES else "",
        mode=status.mode if status.mode in _MODES else "",
    )
