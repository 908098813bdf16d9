"""How much memory does a manager take that has nothing to do: caches synced, leading, probes and metrics served?"""

import asyncio
from datetime import datetime

from bench.program import Options, client_of, resident_megabytes, run, tell
from bench.views import WORKERS, view_of
from paddle_operator.kube.client import Scope
from paddle_operator.kube.controller import Controller
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.lease import Elector
from paddle_operator.kube.manager import Manager
from paddle_operator.kube.objects import CONFIG_MAPS, Key
from paddle_operator.kube.queue import Queue

ANY_PORT = "127.0.0.1:0"
SETTLE_SECONDS = 3.0  # synced and leading after 0.1 s on a quiet machine


async def idle(asked: Options) -> None:
    scope = Scope(asked.namespace)
    async with client_of(asked) as client, client_of(asked) as lease_client:
        elector = Elector(lease_client, Key(asked.namespace, "bench"))
        manager = Manager(
            informers=[Informer(client, WORKERS, scope, project=view_of), Informer(client, CONFIG_MAPS, scope)],
            controllers=[Controller("bench", Queue[Key]("bench"), nothing_to_do)],
            elector=elector,
            recorder=Recorder(client, reporter="bench"),
            health_address=ANY_PORT,
            metrics_address=ANY_PORT,
        )
        running = asyncio.ensure_future(manager.run())
        await asyncio.wait((running,), timeout=SETTLE_SECONDS)
        assert elector.leading, "a manager that leads has synced its caches before"
        tell(resident=resident_megabytes())
        manager.stop()
        await running


async def nothing_to_do(_: Key) -> datetime | None:
    return None


if __name__ == "__main__":
    run(Options, idle)
