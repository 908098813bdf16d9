"""The rules of a job's policies: retries, deadlines, success, and the controller that manages it."""

import re
from collections.abc import Iterator

from paddle_operator.api.rules import ImmutableField, Rule, between, cel_absent
from paddle_operator.api.spec import PaddleJobSpec, PodFailurePolicy, Role, SuccessRule

MAX_INT32 = 2**31 - 1
MAX_RULES = 20
MAX_EXIT_CODE = 255
MAX_INDEXES_LENGTH = 9
INDEXES_PATTERN = "^[0-9]{1,4}(-[0-9]{1,4})?$"
MAX_MANAGER_LENGTH = 63
MANAGER_PATTERN = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9._]+$"

# Bounds of lists and strings: the API server accepts CEL over them only if they are bounded.
POLICY_BOUNDS: dict[str, dict[str, object]] = {
    "podFailurePolicy.rules": {"minItems": 1, "maxItems": MAX_RULES},
    "podFailurePolicy.rules.items.onExitCodes.values": {"minItems": 1, "maxItems": MAX_EXIT_CODE},
    "podFailurePolicy.rules.items.onExitCodes.values.items": {"minimum": 1, "maximum": MAX_EXIT_CODE},
    "successPolicy.rules": {"minItems": 1, "maxItems": 1},
    "successPolicy.rules.items.succeededIndexes": {"pattern": INDEXES_PATTERN, "maxLength": MAX_INDEXES_LENGTH},
    "managedBy": {"pattern": MANAGER_PATTERN, "maxLength": MAX_MANAGER_LENGTH},
}


def policy_problems(spec: PaddleJobSpec) -> Iterator[str]:
    """The same bounds for jobs stored before the CRD had a schema."""
    if spec.pod_failure_policy:
        yield from _failure_problems(spec.pod_failure_policy)
    if spec.success_policy and len(spec.success_policy.rules) != 1:
        yield f"spec.successPolicy.rules is a list of {len(spec.success_policy.rules)}, but must have one rule"
    indexes = success_rule(spec).succeeded_indexes
    if indexes and not _are_indexes(indexes):
        fix = "be the index of a worker or a range of them, such as 0 or 0-3"
        yield f'spec.successPolicy.rules[0].succeededIndexes is "{indexes[:80]}", but must {fix}'
    manager = spec.managed_by
    if manager and not is_manager(manager):
        yield f'spec.managedBy is "{manager[:80]}", but must be a domain, a slash and a name: remove it'


def is_manager(text: str) -> bool:
    return len(text) <= MAX_MANAGER_LENGTH and re.fullmatch(MANAGER_PATTERN[1:-1], text) is not None


def _failure_problems(policy: PodFailurePolicy) -> Iterator[str]:
    path, rules = "spec.podFailurePolicy.rules", policy.rules
    if not 1 <= len(rules) <= MAX_RULES:
        yield f"{path} is a list of {len(rules)}, but must have from 1 to {MAX_RULES} rules"
    for number, rule in enumerate(rules):
        codes, where = rule.on_exit_codes.values, f"{path}[{number}].onExitCodes.values"
        if not 1 <= len(codes) <= MAX_EXIT_CODE:
            yield f"{where} is a list of {len(codes)}, but must have from 1 to {MAX_EXIT_CODE} codes"
        for index, code in enumerate(codes):
            if not 1 <= code <= MAX_EXIT_CODE:
                yield f"{where}[{index}] is {code}, but a failed container's code is from 1 to {MAX_EXIT_CODE}"


def _are_indexes(text: str) -> bool:
    return len(text) <= MAX_INDEXES_LENGTH and re.fullmatch(INDEXES_PATTERN[1:-1], text) is not None


# Retries

BACKOFF_LIMIT = between("spec.backoffLimit", 0, MAX_INT32, f"must be from 0 to {MAX_INT32}: remove it for none")
BACKOFF_LIMIT_EXCLUDES_ELASTIC = Rule[PaddleJobSpec](
    field="spec.backoffLimit",
    cel="!has(self.backoffLimit) || !has(self.elastic) || self.elastic == 0",
    holds=lambda spec: spec.backoff_limit is None or not spec.is_elastic,
    fix="elastic ranks end and come back whenever their number changes: remove it, and bound the job with "
    "spec.activeDeadlineSeconds, or remove spec.elastic",
)
FAILURE_POLICY_NEEDS_BACKOFF_LIMIT = Rule[PaddleJobSpec](
    field="spec.podFailurePolicy",
    cel="!has(self.podFailurePolicy) || has(self.backoffLimit)",
    holds=lambda spec: spec.pod_failure_policy is None or spec.backoff_limit is not None,
    fix="it chooses among failures that are retried: add spec.backoffLimit, or remove it",
    value_format="without spec.backoffLimit",
    values=lambda _: (),
    cel_values="",
)


def restart_policy_field(spec: PaddleJobSpec, role: Role) -> str:
    """As written; a template stored before the CRD had a schema may be anything."""
    part = spec.roles.get(role)
    pod = part.template.get("spec") if part else None
    return str(pod.get("restartPolicy") or "") if isinstance(pod, dict) else ""


def restart_policy_is_never(role: Role) -> Rule[PaddleJobSpec]:
    path = f"{role}.template.spec.restartPolicy"
    return Rule(
        field=f"spec.{path}",
        cel=f"!has(self.podFailurePolicy) || {cel_absent(path)} || self.{path} == '' || self.{path} == 'Never'",
        holds=lambda spec: spec.pod_failure_policy is None or restart_policy_field(spec, role) in ("", "Never"),
        fix="a container that kubelet restarts shows spec.podFailurePolicy no exit code: remove it, or write Never",
        value_format='"%s"',
        values=lambda spec: (restart_policy_field(spec, role),),
        cel_values=f"self.{path}",
    )


# Deadlines

ACTIVE_DEADLINE = between("spec.activeDeadlineSeconds", 1, MAX_INT32, "must be at least 1: remove it for none")
START_DEADLINE = between("spec.startDeadlineSeconds", 1, MAX_INT32, "must be at least 1: remove it for none")
START_DEADLINE_IS_EARLIER = Rule[PaddleJobSpec](
    field="spec.startDeadlineSeconds",
    cel="!has(self.startDeadlineSeconds) || !has(self.activeDeadlineSeconds) || "
    "self.startDeadlineSeconds < self.activeDeadlineSeconds",
    holds=lambda spec: (
        spec.start_deadline_seconds is None
        or spec.active_deadline_seconds is None
        or spec.start_deadline_seconds < spec.active_deadline_seconds
    ),
    fix="would never come first: make it less than spec.activeDeadlineSeconds, or remove it",
)
TTL = between("spec.ttlSecondsAfterFinished", 0, MAX_INT32, "cannot be negative: remove it to keep the job")

# Success

CEL_RULE = "self.successPolicy.rules[0]"
CEL_ENDS = f"{CEL_RULE}.succeededIndexes.split('-')"
CEL_FIRST, CEL_LAST = f"int({CEL_ENDS}[0])", f"int({CEL_ENDS}[size({CEL_ENDS}) - 1])"
# CEL's int() fails on text that is no number, and then every status write fails: such stored values are skipped.
CEL_NO_INDEXES = f"!has({CEL_RULE}.succeededIndexes) || !{CEL_RULE}.succeededIndexes.matches('{INDEXES_PATTERN}')"
CEL_NO_RULE = "!has(self.successPolicy) || size(self.successPolicy.rules) == 0"


def success_rule(spec: PaddleJobSpec) -> SuccessRule:
    return spec.success_policy.rules[0] if spec.success_policy and spec.success_policy.rules else SuccessRule()


def worker_count(spec: PaddleJobSpec) -> int:
    return spec.worker.replicas if spec.worker else 0


def success_indexes(spec: PaddleJobSpec) -> range:
    """The indexes of the workers that the success policy counts."""
    text = success_rule(spec).succeeded_indexes
    if not _are_indexes(text):
        return range(worker_count(spec))
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


SUCCESS_NEEDS_WORKERS = Rule[PaddleJobSpec](
    field="spec.successPolicy",
    cel="!has(self.successPolicy) || has(self.worker)",
    holds=lambda spec: spec.success_policy is None or spec.worker is not None,
    fix="it chooses among workers: add spec.worker, or remove it",
    value_format="without spec.worker",
    values=lambda _: (),
    cel_values="",
)
SUCCESS_RULE_IS_NOT_EMPTY = Rule[PaddleJobSpec](
    field="spec.successPolicy",
    cel=f"{CEL_NO_RULE} || has({CEL_RULE}.succeededIndexes) || has({CEL_RULE}.succeededCount)",
    holds=lambda spec: not (spec.success_policy and spec.success_policy.rules) or success_rule(spec) != SuccessRule(),
    fix="a rule needs succeededIndexes, succeededCount or both: add one, or remove spec.successPolicy",
    value_format="with an empty rule",
    values=lambda _: (),
    cel_values="",
)
SUCCEEDED_INDEXES_EXIST = Rule[PaddleJobSpec](
    field="spec.successPolicy.rules[0].succeededIndexes",
    cel=f"{CEL_NO_RULE} || {CEL_NO_INDEXES} || !has(self.worker) "
    f"|| ({CEL_FIRST} <= {CEL_LAST} && {CEL_LAST} < self.worker.replicas)",
    holds=lambda spec: (
        not _are_indexes(success_rule(spec).succeeded_indexes)
        or spec.worker is None
        or (len(success_indexes(spec)) > 0 and success_indexes(spec).stop <= worker_count(spec))
    ),
    fix="must name workers that exist, counted from 0, the lowest first",
    value_format='"%s" in a job of %d workers',
    values=lambda spec: (success_rule(spec).succeeded_indexes, worker_count(spec)),
    cel_values=f"{CEL_RULE}.succeededIndexes, self.worker.replicas",
)
SUCCEEDED_COUNT_IN_RANGE = Rule[PaddleJobSpec](
    field="spec.successPolicy.rules[0].succeededCount",
    cel=f"{CEL_NO_RULE} || !has({CEL_RULE}.succeededCount) || !has(self.worker) || ({CEL_RULE}.succeededCount >= 1 && "
    f"{CEL_RULE}.succeededCount <= (!({CEL_NO_INDEXES}) ? {CEL_LAST} - {CEL_FIRST} + 1 : self.worker.replicas))",
    holds=lambda spec: (
        spec.worker is None
        or (count := success_rule(spec).succeeded_count) is None
        or 1 <= count <= len(success_indexes(spec))
    ),
    fix="must be from 1 to the number of workers that count",
    values=lambda spec: (success_rule(spec).succeeded_count,),
    cel_values=f"{CEL_RULE}.succeededCount",
)

POLICY_RULES: tuple[Rule[PaddleJobSpec], ...] = (
    BACKOFF_LIMIT,
    BACKOFF_LIMIT_EXCLUDES_ELASTIC,
    FAILURE_POLICY_NEEDS_BACKOFF_LIMIT,
    *(restart_policy_is_never(role) for role in Role),
    ACTIVE_DEADLINE,
    START_DEADLINE,
    START_DEADLINE_IS_EARLIER,
    TTL,
    SUCCESS_NEEDS_WORKERS,
    SUCCESS_RULE_IS_NOT_EMPTY,
    SUCCEEDED_INDEXES_EXIST,
    SUCCEEDED_COUNT_IN_RANGE,
)


IMMUTABLE_FIELDS = (
    ImmutableField("spec.managedBy", "cannot change: delete the job and create it again"),
    ImmutableField(
        "spec.schedulingPolicy.queue",
        "cannot change while the job runs: suspend the job, change it, and resume the job",
        changes_while_suspended=True,
    ),
)
