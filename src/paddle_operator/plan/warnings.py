"""What did the user ask for that will not end well? It stays as asked, and a condition says what will come of it."""

from collections.abc import Iterator
from datetime import datetime

from paddle_operator.api.paddlejob import Condition
from paddle_operator.api.reasons import Reason
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_template import restart_policy, variables_of
from paddle_operator.plan.rendezvous_env import RENDEZVOUS
from paddle_operator.plan.scheduling_policy import foreign_scheduler
from paddle_operator.plan.status import make_condition

RENDEZVOUS_AT_RISK, COMPLETION_AT_RISK, GANG_AT_RISK = "RendezvousAtRisk", "CompletionAtRisk", "GangAtRisk"


def risks(world: ObservedJob, scheduling: str, now: datetime) -> Iterator[Condition]:
    """A condition for each risk there is, and for each that there was and is no more."""
    found = {
        RENDEZVOUS_AT_RISK: (Reason.USER_VARIABLES, _own_rendezvous(world)),
        COMPLETION_AT_RISK: (Reason.RESTARTS_ALWAYS, _endless(world)),
        GANG_AT_RISK: (Reason.OTHER_SCHEDULER, foreign_scheduler(world.spec, scheduling)),
    }
    told = {each.type for each in world.job.status.conditions}
    for type_, (reason, message) in found.items():
        if message:
            yield make_condition(world.job, type_, True, reason, message, now)
        elif type_ in told:
            yield make_condition(world.job, type_, False, Reason.NO_RISK, "the cause is gone from the spec", now)


def _own_rendezvous(world: ObservedJob) -> str:
    """One variable that differs makes a rank wait for ever, or train alone and exit 0."""
    set_ = {role: sorted(variables_of(wanted) & RENDEZVOUS) for role, wanted in world.spec.roles.items()}
    texts = [f"spec.{role}.template sets {', '.join(names)}" for role, names in set_.items() if names]
    return f"{'; '.join(texts)}: ranks may not find each other; remove them, the operator sets them" if texts else ""


def _endless(world: ObservedJob) -> str:
    """Kubelet would start a worker that is done again and again, and no pod of it would ever have succeeded."""
    endless = [role for role in world.success_roles if restart_policy(world.spec, role) == "Always"]
    if not endless:
        return ""
    fields = " and ".join(f"spec.{role}.template.spec.restartPolicy" for role in endless)
    return f"{fields} is Always: its pods never succeed, and the job is never completed; set OnFailure or Never"
