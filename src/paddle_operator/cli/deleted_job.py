"""What became of a job that is no longer there? Its time to live may have been over before anybody saw how it ended."""

from paddle_operator.api.paddlejob import KIND, Phase
from paddle_operator.cli.events import events_about
from paddle_operator.cli.exit_codes import COMPLETED, FAILED, REFUSED
from paddle_operator.cli.live_view import warn
from paddle_operator.cli.tables import Manifest
from paddle_operator.kube.client import Client
from paddle_operator.plan.children import Job

CODE_OF = {Phase.COMPLETED: COMPLETED, Phase.FAILED: FAILED}


async def told_of_gone(client: Client, job: Job) -> int:
    """Say how it ended, by the event that told of it, which outlives the job; the answer is the exit code."""
    code, sentence = fate(job, await events_about(client, job.key.namespace, job.key.name))
    warn(sentence)
    return code


def fate(job: Job, events: list[Manifest]) -> tuple[int, str]:
    """The exit code and the sentence for a job of which only the events are left."""
    name = job.key.name
    for event in events:
        about, reason = event.get("regarding") or {}, event.get("reason")
        if about.get("kind") == KIND and about.get("uid") == job.uid and reason in CODE_OF:
            ttl = job.spec.ttl_seconds_after_finished if job.spec else None
            why = "" if ttl is None else f" (spec.ttlSecondsAfterFinished is {ttl})"
            return CODE_OF[Phase(reason)], f"{name}  {reason}, and was deleted since{why}: {event.get('note')}"
    return REFUSED, f"{name} was deleted before it had finished"
