"""Jobs that are over, as the operator leaves them: made, and told to be Completed, with nothing of them left."""

from datetime import UTC, datetime

from bench.jobs import Shape, a_job
from bench.program import Options, Starter, client_of, each, run, tell
from paddle_operator.api.paddlejob import Phase
from paddle_operator.kube.objects import Key
from paddle_operator.plan.job_view import PADDLE_JOBS

TELL_EVERY = 1_000


class Finish(Options, frozen=True, kw_only=True):
    jobs: int


async def finish(asked: Finish, _: Starter) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    counts = {"replicas": 2, "succeeded": 2}
    status = {"phase": Phase.COMPLETED, "completionTime": now, "startTime": now, "ready": "2/2", "worker": counts}
    async with client_of(asked, "submitter") as client:

        async def make(number: int) -> None:
            name = f"done-{number}"
            await client.create(PADDLE_JOBS, a_job(asked.namespace, name, Shape(jobs=1, workers=2)))
            await client.merge(PADDLE_JOBS, Key(asked.namespace, name), {"status": status}, subresource="status")
            if number % TELL_EVERY == 0:
                tell(pods=number)

        await each(range(asked.jobs), make)
    tell(pods=asked.jobs)


if __name__ == "__main__":
    run(Finish, finish)
