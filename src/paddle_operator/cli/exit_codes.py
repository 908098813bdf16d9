"""Exit codes of all verbs, and that of a job that was deleted while a verb watched it. docs/en/local.md lists them."""

from paddle_operator.api.paddlejob import KIND, Phase
from paddle_operator.cli.events import Event, list_events
from paddle_operator.cli.output import echo_error
from paddle_operator.kube.client import Client
from paddle_operator.plan.job_view import Job

COMPLETED = 0
FAILED = 1  # the job ran and failed
REFUSED = 2  # nothing was run: the command line, the YAML or the cluster does not allow it
NOT_YET = 3  # the job continues; the command stopped waiting
INTERRUPTED = 130  # Ctrl-C; shells use the same code
BROKEN_PIPE = 141  # the reader closed the pipe, as `| head` does; shells use the same code

CODE_BY_PHASE = {Phase.COMPLETED: COMPLETED, Phase.FAILED: FAILED}


async def report_deleted_job(client: Client, job: Job) -> int:
    """Print how a deleted job had ended, and return its exit code: its last event outlives it."""
    code, message = outcome_from_events(job, await list_events(client, job.key.namespace, job.key.name))
    echo_error(message)
    return code


def outcome_from_events(job: Job, events: list[Event]) -> tuple[int, str]:
    """Exit code and message for a job of which only the events are left."""
    name = job.key.name
    for event in events:
        regarding, reason = event.get("regarding") or {}, event.get("reason")
        if regarding.get("kind") == KIND and regarding.get("uid") == job.uid and reason in CODE_BY_PHASE:
            ttl = job.spec.ttl_seconds_after_finished if job.spec else None
            why = "" if ttl is None else f" (spec.ttlSecondsAfterFinished is {ttl})"
            return CODE_BY_PHASE[Phase(reason)], f"{name}  {reason}, then deleted{why}: {event.get('note')}"
    return REFUSED, f"{name} was deleted before it finished"
