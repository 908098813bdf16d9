"""Creates finished jobs as the operator leaves them: status Completed, no children."""

from datetime import UTC, datetime

from bench.jobs import Shape, make_job
from bench.program import Options, ParentProcess, make_client, print_figures, run, run_concurrently
from paddle_operator.api.paddlejob import Phase
from paddle_operator.kube.objects import Key
from paddle_operator.plan.job_view import PADDLE_JOBS

PROGRESS_INTERVAL_JOBS = 1_000


class Finish(Options, frozen=True, kw_only=True):
    jobs: int


async def finish(arguments: Finish, _: ParentProcess) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    counts = {"replicas": 2, "succeeded": 2}
    status = {"phase": Phase.COMPLETED, "completionTime": now, "startTime": now, "ready": "2/2", "worker": counts}
    async with make_client(arguments, "submitter") as client:

        async def create_finished_job(number: int) -> None:
            name = f"done-{number}"
            await client.create(PADDLE_JOBS, make_job(arguments.namespace, name, Shape(jobs=1, workers=2)))
            await client.merge(PADDLE_JOBS, Key(arguments.namespace, name), {"status": status}, subresource="status")
            if number % PROGRESS_INTERVAL_JOBS == 0:
                print_figures(pods=number)

        await run_concurrently(range(arguments.jobs), create_finished_job)
    print_figures(pods=arguments.jobs)


if __name__ == "__main__":
    run(Finish, finish)
