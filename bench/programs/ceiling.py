"""The live ceiling: how fast does a bare loop create the pods of a load while the hollow nodes work on them?

The jobs are there, so that nobody collects their pods, and so are their ConfigMaps, so that containers start at once;
no operator is. The pods are those that it would write, to the byte.
"""

import time

import msgspec

from bench.jobs import Shape, a_job, pods_of
from bench.program import Options, Starter, bare_session, client_of, each, run, tell
from paddle_operator.kube.objects import CONFIG_MAPS, PODS
from paddle_operator.plan.kinds import PADDLE_JOBS, job_view


class Ceiling(Options, frozen=True, kw_only=True):
    shape: Shape


async def ceiling(asked: Ceiling, starter: Starter) -> None:
    bodies = await prepared(asked)
    path = PODS.path(namespace=asked.namespace)
    async with bare_session(asked) as session:

        async def read(_: int) -> None:
            async with session.get(path, params={"limit": "1"}) as reply:
                await reply.read()

        async def deed(number: int) -> None:
            async with session.post(path, data=bodies[number]) as reply:
                assert reply.status == 201, await reply.text()
                await reply.read()

        await each(range(100), read)  # opens the connections
        tell(ready=1)
        await starter.word()
        began_at = time.monotonic()
        await each(range(len(bodies)), deed)
        tell(rate=len(bodies) / (time.monotonic() - began_at))


async def prepared(asked: Ceiling) -> list[bytes]:
    bodies: dict[int, list[bytes]] = {}
    async with client_of(asked, "submitter") as client:

        async def make(number: int) -> None:
            name = f"bare-{number}"
            stored = await client.create(PADDLE_JOBS, a_job(asked.namespace, name, asked.shape))
            metadata = {"name": name, "namespace": asked.namespace}
            await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            bodies[number] = [msgspec.json.encode(pod) for pod in pods_of(job_view(stored))]

        await each(range(asked.shape.jobs), make)
    return [body for number in sorted(bodies) for body in bodies[number]]


if __name__ == "__main__":
    run(Ceiling, ceiling)
