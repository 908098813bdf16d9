"""The kind PaddleJob: how the API server knows it, and how its two halves are read."""

import msgspec

from paddle_operator.api.fitting import validate_template
from paddle_operator.api.paddlejob_policy_rules import is_manager, rule_of, success_indexes
from paddle_operator.api.paddlejob_rules import problems
from paddle_operator.api.reading import InvalidSpec, read
from paddle_operator.api.spec import (
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
from paddle_operator.api.status import Condition, PaddleJobStatus, Reference, RoleStatus, RootFailure

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "MANAGER",
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
    "problems",
    "read_spec",
    "read_status",
    "rule_of",
    "success_indexes",
]

GROUP = "batch.paddlepaddle.org"
VERSION = "v1"
KIND = "PaddleJob"
PLURAL = "paddlejobs"
API_VERSION = f"{GROUP}/{VERSION}"
MANAGER = f"{GROUP}/paddle-operator"  # this operator, in spec.managedBy

_SPEC = msgspec.json.Decoder(PaddleJobSpec)
_STATUS = msgspec.json.Decoder(PaddleJobStatus)
_PHASES, _MODES = frozenset(("", *Phase)), frozenset(("", *Mode))


def read_spec(raw: bytes, name: str | None = None) -> PaddleJobSpec:
    """The spec, and the job's name where it is given, checked. Raises Unfit with everything that is wrong.

    An object that the API server has accepted under our CRD is never unfit; one that was stored before may be.
    """
    try:
        spec = _SPEC.decode(raw)
    except msgspec.ValidationError:
        spec = _part_by_part(raw)
    wrong = problems(spec, name)
    for role, part in spec.roles.items():
        wrong += validate_template(part.template, f"spec.{role}.template")
    if wrong:
        raise InvalidSpec(wrong)
    return spec


def _part_by_part(raw: bytes) -> PaddleJobSpec:
    """Slower, and finds every mistake in the types; a null is no mistake."""
    spec, wrong = read(PaddleJobSpec, msgspec.json.decode(raw) or {}, "spec")
    if wrong or spec is None:
        raise InvalidSpec(wrong)
    return spec


def manager_of(raw: bytes) -> str:
    """Who looks after a job whose spec cannot be read as a whole; nobody where that cannot be read either."""
    written = msgspec.json.decode(raw)
    manager = written.get("managedBy") if isinstance(written, dict) else None
    return manager if isinstance(manager, str) and is_manager(manager) else ""


def read_status(raw: bytes) -> PaddleJobStatus:
    """The status as far as it can be read; the rest, also a phase that we do not know, is as if it were not there."""
    try:
        status = _STATUS.decode(raw)
    except msgspec.ValidationError:
        status = read(PaddleJobStatus, msgspec.json.decode(raw) or {}, "status")[0] or PaddleJobStatus()
    if status.phase in _PHASES and status.mode in _MODES:
        return status
    return msgspec.structs.replace(
        status,
        phase=status.phase if status.phase in _PHASES else "",
        mode=status.mode if status.mode in _MODES else "",
    )
