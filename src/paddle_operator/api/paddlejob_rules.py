"""The rules of a PaddleJob beyond its types, each declared once.

The CRD has `cel`, with the same message; a property test on a real API server keeps both equal. The operator
validates again, since an object may have been stored before the CRD had rules.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from paddle_operator.api.paddlejob_policy_rules import POLICY_RULES
from paddle_operator.api.rules import Rule, at_least, between, cel_absent, value_at
from paddle_operator.api.spec import PaddleJobSpec, Role, RoleSpec

MAX_REPLICAS = 10_000
LONGEST_SUFFIX = f"-{max(Role, key=len)}-{MAX_REPLICAS - 1}"
MAX_LABEL_LENGTH = 63  # of a pod's host name and of a Service's name
MAX_NAME_LENGTH = MAX_LABEL_LENGTH - len(LONGEST_SUFFIX)
LABEL_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"  # DNS-1035, as Services need it
MIN_PORT, MAX_PORT = 1, 65_535


# Names

NAME_IS_LABEL = Rule[str](
    field="metadata.name",
    cel=f"self.metadata.name.matches('{LABEL_PATTERN}')",
    holds=lambda name: re.fullmatch(LABEL_PATTERN[1:-1], name) is not None,
    fix="Services are named after it: begin with a letter, then use a to z, 0 to 9 and -, and no dot",
    value_format='"%s"',
    values=lambda name: (name,),
    cel_values="self.metadata.name",
    cel_path="",
)
NAME_IS_SHORT = Rule[str](
    field="metadata.name",
    cel=f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
    holds=lambda name: len(name) <= MAX_NAME_LENGTH,
    fix=f"with {LONGEST_SUFFIX} behind it, it must fit {MAX_LABEL_LENGTH}: use at most {MAX_NAME_LENGTH} characters",
    value_format='"%s" of %d characters',
    values=lambda name: (name, len(name)),
    cel_values="self.metadata.name, size(self.metadata.name)",
    cel_path="",
)
NAME_RULES: tuple[Rule[str], ...] = (NAME_IS_LABEL, NAME_IS_SHORT)

# Roles

HAS_ROLE = Rule[PaddleJobSpec](
    field="spec",
    cel=" || ".join(f"has(self.{role})" for role in Role),
    holds=lambda spec: bool(spec.roles),
    fix="a job has pods: add spec.worker, and spec.ps where it has parameter servers",
    value_format="without a role",
    values=lambda _: (),
    cel_values="",
)


def role_rules(role: Role) -> tuple[Rule[PaddleJobSpec], ...]:
    path = f"spec.{role}"

    def each(holds: Callable[[RoleSpec], bool]) -> Callable[[PaddleJobSpec], bool]:
        return lambda spec: role not in spec.roles or holds(spec.roles[role])

    return (
        between(f"{path}.replicas", 1, MAX_REPLICAS, f"must be from 1 to {MAX_REPLICAS}: for none, remove {path}"),
        at_least(f"{path}.requests", 0, "cannot be negative: remove it for no lower limit"),
        at_least(f"{path}.limits", 0, "cannot be negative: remove it for no upper limit"),
        Rule(
            field=f"{path}.requests",
            cel="!has(self.requests) || self.requests <= self.replicas",
            holds=each(lambda part: part.requests is None or part.requests <= part.replicas),
            fix=f"is the fewest pods of this role: make it at most {path}.replicas",
            cel_path=path,
        ),
        Rule(
            field=f"{path}.limits",
            cel="!has(self.limits) || self.limits <= 0 || self.replicas <= self.limits",
            holds=each(lambda part: part.limits is None or part.limits <= 0 or part.replicas <= part.limits),
            fix=f"is the most pods of this role: make it at least {path}.replicas",
            cel_path=path,
        ),
    )


# The job as a whole

GLOO = between("spec.withGloo", 0, 2, "must be 0 (off), 1 (workers) or 2 (workers and servers)")
ELASTIC = at_least("spec.elastic", 0, "must be 0 (a fixed number of workers) or 1 (elastic)")
ELASTIC_NEEDS_WORKERS = Rule[PaddleJobSpec](
    field="spec.elastic",
    cel="!has(self.elastic) || self.elastic == 0 || has(self.worker)",
    holds=lambda spec: not spec.is_elastic or spec.worker is not None,
    fix="only workers can be elastic: add spec.worker, or remove spec.elastic",
)
ELASTIC_IS_COLLECTIVE = Rule[PaddleJobSpec](
    field="spec.elastic",
    cel="!has(self.elastic) || self.elastic == 0 || (!has(self.ps) && !has(self.heter))",
    holds=lambda spec: not spec.is_elastic or (spec.ps is None and spec.heter is None),
    fix="Paddle's elastic training has workers only: remove spec.ps and spec.heter, or remove spec.elastic",
)

MIN_AVAILABLE = "spec.schedulingPolicy.minAvailable"
CEL_TOTAL = "(" + " + ".join(f"(has(self.{role}) ? self.{role}.replicas : 0)" for role in Role) + ")"
MIN_AVAILABLE_IN_RANGE = Rule[PaddleJobSpec](
    field=MIN_AVAILABLE,
    cel=f"{cel_absent(MIN_AVAILABLE)} || "
    f"(self.schedulingPolicy.minAvailable >= 1 && self.schedulingPolicy.minAvailable <= {CEL_TOTAL})",
    holds=lambda spec: (number := value_at(spec, MIN_AVAILABLE)) is None or 1 <= number <= spec.total,
    fix="must be from 1 to all pods: remove it to start when all can",
    value_format="%d in a job of %d pods",
    values=lambda spec: (value_at(spec, MIN_AVAILABLE), spec.total),
    cel_values=f"self.schedulingPolicy.minAvailable, {CEL_TOTAL}",
)

SPEC_RULES: tuple[Rule[PaddleJobSpec], ...] = (
    HAS_ROLE,
    *(rule for role in Role for rule in role_rules(role)),
    GLOO,
    ELASTIC,
    ELASTIC_NEEDS_WORKERS,
    ELASTIC_IS_COLLECTIVE,
    MIN_AVAILABLE_IN_RANGE,
    *POLICY_RULES,
)

# Templates: what the schema of a PodTemplateSpec alone would let through. The CRD has these as minItems, minimum and
# maximum, since CEL over unbounded lists exceeds the cost limit of the API server.


def templates_problems(spec: PaddleJobSpec) -> Iterator[str]:
    for role, part in spec.roles.items():
        yield from template_problems(role, part)


def template_problems(role: Role, part: RoleSpec) -> Iterator[str]:
    path = f"spec.{role}.template.spec"
    pod = part.template.get("spec")
    if not isinstance(pod, dict) or not _maps(pod.get("containers")):
        yield f"{path}.containers is empty, but a pod runs something: add a container with a name and an image"
        return
    for key in ("initContainers", "containers"):
        for number, container in enumerate(_maps(pod.get(key))):
            yield from port_problems(f"{path}.{key}[{number}].ports", _maps(container.get("ports")))


def port_problems(path: str, ports: list[dict[str, Any]]) -> Iterator[str]:
    for number, port in enumerate(ports):
        for key, lowest in (("containerPort", MIN_PORT), ("hostPort", 0)):  # 0 stands for no port of the host
            value = port.get(key)
            if isinstance(value, int) and not lowest <= value <= MAX_PORT:
                yield f"{path}[{number}].{key} is {value}, but must be from {lowest} to {MAX_PORT}"


def _maps(value: object) -> list[dict[str, Any]]:
    """The maps in a list, empty if it is no list: the job may have been stored before the CRD had a schema."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
