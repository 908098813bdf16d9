"""A wrong job for each thing that is refused in the policies of a job's life, and a right one beside it."""

from paddle_operator.api.paddlejob import Role
from tests.api.cases import Case
from tests.api.jobs import Written, a_role, make_template

WORKERS: Written = {"worker": a_role(4)}
MOST = 2**31 - 1


def with_policy(**fields: object) -> Written:
    return WORKERS | fields


def failure_policy(*rules: object) -> Written:
    return with_policy(backoffLimit=1, podFailurePolicy={"rules": list(rules)})


def a_rule(*codes: object, action: str = "FailJob", operator: str = "In") -> Written:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}}


def success_policy(*rules: object) -> Written:
    return with_policy(successPolicy={"rules": list(rules)})


def done_when(**rule: object) -> Written:
    return success_policy(rule)


def restarted(role: Role, policy: str) -> Written:
    """A role whose containers kubelet starts again, and a policy about their exit codes."""
    template = make_template()
    template["spec"]["restartPolicy"] = policy
    return failure_policy(a_rule(1)) | {role: a_role(template=template)}


RULES = "spec.podFailurePolicy.rules"
VALUES = f"{RULES}[0].onExitCodes.values"
RULE = "spec.successPolicy.rules[0]"

TRIES = [
    Case(
        with_policy(backoffLimit=-1),
        with_policy(backoffLimit=0),
        "spec.backoffLimit is -1, but must be from 0 to 2147483647: remove it for none",
    ),
    Case(with_policy(backoffLimit=MOST + 1), with_policy(backoffLimit=MOST), "spec.backoffLimit is 2147483648, but"),
    Case(
        with_policy(backoffLimit=3, elastic=1),
        with_policy(backoffLimit=3, elastic=0),
        "spec.backoffLimit is 3, but elastic ranks end and come back whenever their number changes: remove it, and "
        "bound the job with spec.activeDeadlineSeconds, or remove spec.elastic",
    ),
    Case(
        with_policy(backoffLimit=0, elastic=1),
        with_policy(activeDeadlineSeconds=60, elastic=1),
        "spec.backoffLimit is 0, but elastic",
    ),
    Case(
        with_policy(podFailurePolicy={"rules": [a_rule(1)]}),
        failure_policy(a_rule(1)),
        "spec.podFailurePolicy is without spec.backoffLimit, but it chooses among failures that are retried",
    ),
    *(
        Case(
            restarted(role, policy),
            restarted(role, right),
            f'spec.{role}.template.spec.restartPolicy is "{policy}", but a container that kubelet restarts shows',
        )
        for role, policy, right in (
            (Role.PS, "Always", "Never"),
            (Role.WORKER, "OnFailure", "Never"),
            (Role.HETER, "OnFailure", "Never"),
        )
    ),
    Case(
        failure_policy(),
        failure_policy(a_rule(1)),
        f"{RULES} is a list of 0, but must have from 1 to 20 rules",
        server=f"{RULES} in body should have at least 1 items",
    ),
    Case(
        failure_policy(*[a_rule(1)] * 21),
        failure_policy(*[a_rule(1)] * 20),
        f"{RULES} is a list of 21, but",
        server=f"{RULES}: Too many: 21: must have at most 20 items",
    ),
    Case(
        failure_policy(a_rule()),
        failure_policy(a_rule(1, 255)),
        f"{VALUES} is a list of 0, but must have from 1 to 255 codes",
        server=f"{VALUES} in body should have at least 1 items",
    ),
    Case(
        failure_policy(a_rule(*[1] * 256)),
        failure_policy(a_rule(*[1] * 255)),
        f"{VALUES} is a list of 256, but",
        server=f"{VALUES}: Too many: 256: must have at most 255 items",
    ),
    Case(
        failure_policy(a_rule(1, 0)),
        failure_policy(a_rule(1, 1)),
        f"{VALUES}[1] is 0, but a failed container's code is from 1 to 255",
        server=f"{VALUES}[1] in body should be greater than or equal to 1",
    ),
    Case(
        failure_policy(a_rule(256)),
        failure_policy(a_rule(255)),
        f"{VALUES}[0] is 256, but",
        server=f"{VALUES}[0] in body should be less than or equal to 255",
    ),
    Case(
        failure_policy(a_rule(1, action="Retry")),
        failure_policy(a_rule(1, action="Ignore")),
        f'{RULES}[0].action is "Retry", but must be FailJob, Count or Ignore',
        server=f'{RULES}[0].action: Unsupported value: "Retry": supported values: "FailJob", "Count", "Ignore"',
    ),
    Case(
        failure_policy(a_rule(1, operator="Is")),
        failure_policy(a_rule(1, operator="NotIn")),
        f'{RULES}[0].onExitCodes.operator is "Is", but must be In or NotIn',
        server=f'{RULES}[0].onExitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"',
    ),
    Case(
        failure_policy({"action": "Count"}),
        failure_policy(a_rule(1, action="Count")),
        f"{RULES}[0].onExitCodes is not set, but",
        server=f"{RULES}[0].onExitCodes: Required value",
    ),
]

DEADLINES = [
    *(
        Case(
            with_policy(**{field: wrong}),
            with_policy(**{field: right}),
            f"spec.{field} is {wrong}, but must be at least 1: remove it for none",
        )
        for field in ("activeDeadlineSeconds", "startDeadlineSeconds")
        for wrong, right in ((0, 1), (-1, 1), (MOST + 1, MOST))
    ),
    Case(
        with_policy(startDeadlineSeconds=60, activeDeadlineSeconds=60),
        with_policy(startDeadlineSeconds=59, activeDeadlineSeconds=60),
        "spec.startDeadlineSeconds is 60, but would never come first: make it less than spec.activeDeadlineSeconds",
    ),
    Case(
        with_policy(ttlSecondsAfterFinished=-1),
        with_policy(ttlSecondsAfterFinished=0),
        "spec.ttlSecondsAfterFinished is -1, but cannot be negative: remove it to keep the job",
    ),
]

SUCCESS = [
    Case(
        {"ps": a_role(), "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
        done_when(succeededIndexes="0"),
        "spec.successPolicy is without spec.worker, but it chooses among workers: add spec.worker, or remove it",
    ),
    Case(
        done_when(),
        done_when(succeededCount=1),
        "spec.successPolicy is with an empty rule, but a rule needs succeededIndexes, succeededCount or both",
    ),
    Case(
        success_policy(),
        done_when(succeededCount=4),
        "spec.successPolicy.rules is a list of 0, but must have one rule",
        server="spec.successPolicy.rules in body should have at least 1 items",
    ),
    Case(
        success_policy({"succeededCount": 1}, {"succeededCount": 2}),
        done_when(succeededCount=2),
        "spec.successPolicy.rules is a list of 2, but must have one rule",
        server="spec.successPolicy.rules: Too many: 2: must have at most 1 item",
    ),
    *(
        Case(
            done_when(succeededIndexes=wrong),
            done_when(succeededIndexes=right),
            f'{RULE}.succeededIndexes is "{wrong}" in a job of 4 workers, but must name workers that exist',
        )
        for wrong, right in (("4", "3"), ("0-4", "0-3"), ("3-1", "1-3"), ("0009", "0003"))
    ),
    *(
        Case(
            done_when(succeededIndexes=wrong),
            done_when(succeededIndexes="0-3"),
            f'{RULE}.succeededIndexes is "{wrong}", but must be the index of a worker or a range of them',
            server=f"{RULE}.succeededIndexes in body should match",
        )
        for wrong in ("0,2", "-1", "00000", "a")
    ),
    *(
        Case(
            done_when(succeededCount=wrong, **others),
            done_when(succeededCount=right, **others),
            f"{RULE}.succeededCount is {wrong}, but must be from 1 to the number of workers that count",
        )
        for wrong, right, others in ((0, 1, {}), (5, 4, {}), (3, 2, {"succeededIndexes": "1-2"}))
    ),
]

MANAGER = [
    *(
        Case(
            with_policy(managedBy=wrong),
            with_policy(managedBy=right),
            f'spec.managedBy is "{wrong}", but must be a domain, a slash and a name: remove it',
            server="spec.managedBy in body should match",
        )
        for wrong, right in (("kueue", "kueue.x-k8s.io/multikueue"), ("/a", "a/a"), ("a/b/c", "a/b.c"))
    ),
    Case(
        with_policy(managedBy=f"a/{'b' * 62}"),
        with_policy(managedBy=f"a/{'b' * 61}"),
        f'spec.managedBy is "a/{"b" * 62}", but',
        server="spec.managedBy: Too long: may not be more than 63",
    ),
]

POLICY_CASES = [*TRIES, *DEADLINES, *SUCCESS, *MANAGER]
