"""Conditions that warn about a valid spec: it is applied as written, and the condition names the risk."""

from collections.abc import Iterator
from datetime import datetime

from paddle_operator.api.paddlejob import Condition
from paddle_operator.api.reasons import Reason
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_template import env_names, restart_policy
from paddle_operator.plan.rendezvous_env import RENDEZVOUS_VARIABLES
from paddle_operator.plan.scheduling_policy import foreign_scheduler_message
from paddle_operator.plan.status import make_condition
from paddle_operator.plan.success_policy import success_roles

RENDEZVOUS_AT_RISK, COMPLETION_AT_RISK, GANG_AT_RISK = "RendezvousAtRisk", "CompletionAtRisk", "GangAtRisk"


def spec_warnings(observed: ObservedJob, scheduling: str, now: datetime) -> Iterator[Condition]:
    """A condition for each risk, True while it exists and False after it has ended."""
    found = {
        RENDEZVOUS_AT_RISK: (Reason.USER_VARIABLES, _rendezvous_message(observed)),
        COMPLETION_AT_RISK: (Reason.RESTARTS_ALWAYS, _completion_message(observed)),
        GANG_AT_RISK: (Reason.OTHER_SCHEDULER, foreign_scheduler_message(observed.spec, scheduling)),
    }
    before = {each.type for each in observed.job.status.conditions}
    for type_, (reason, message) in found.items():
        if message:
            yield make_condition(observed.job, type_, True, reason, message, now)
        elif type_ in before:
            yield make_condition(observed.job, type_, False, Reason.NO_RISK, "the spec no longer has the cause", now)


def _rendezvous_message(observed: ObservedJob) -> str:
    """One variable that differs makes a rank wait forever, or train alone and exit 0."""
    names = {role: sorted(env_names(part) & RENDEZVOUS_VARIABLES) for role, part in observed.spec.roles.items()}
    texts = [f"spec.{role}.template sets {', '.join(found)}" for role, found in names.items() if found]
    return f"{'; '.join(texts)}: ranks may not find each other; remove them, the operator sets them" if texts else ""


def _completion_message(observed: ObservedJob) -> str:
    """Kubelet restarts a worker that exits 0, so none of its pods ever succeeds."""
    endless = [role for role in success_roles(observed) if restart_policy(observed.spec, role) == "Always"]
    if not endless:
        return ""
    fields = " and ".join(f"spec.{role}.template.spec.restartPolicy" for role in endless)
    return f"{fields} is Always: its pods never succeed, and the job is never completed; set OnFailure or Never"
