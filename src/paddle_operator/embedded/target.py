"""Which cluster is a command about? The embedded one, unless a kubeconfig or a context is named.

Where the embedded one does not run, its API server alone is started for the length of the command: what is stored can
be looked at, and deleted, without anything being run.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddle_operator.api.paddlejob import Phase
from paddle_operator.embedded.state import AlreadyRuns, Cluster, State
from paddle_operator.kube.client import Client
from paddle_operator.kube.config import load
from paddle_operator.kube.config.server import Connection, PlainConnection

USER_AGENT = "paddlejob"
LOOKS, LOOK_SECONDS = 40, 0.1


@dataclass(frozen=True)
class Target:
    state: State
    kubeconfig: Path | None = None
    context: str | None = None
    local: bool = False  # also where KUBECONFIG is set
    namespace: str | None = None

    @property
    def is_embedded(self) -> bool:
        named = self.kubeconfig or self.context or os.environ.get("KUBECONFIG")
        if not named or self.local:
            return True
        return self._names_our_own()

    def _names_our_own(self) -> bool:
        """Who exported our own kubeconfig means the embedded cluster, with everything that it can do more."""
        path = self.kubeconfig or Path(os.environ.get("KUBECONFIG", ""))
        return self.context is None and path.absolute() == self.state.kubeconfig

    @property
    def is_asleep(self) -> bool:
        """The embedded cluster does not run: what is stored can be looked at, and nobody acts on it."""
        return self.is_embedded and self.state.running() is None

    def tell_if_asleep(self, *phases: str) -> None:
        """Where nobody acts on what is stored, a job that is not over is not under way either."""
        if self.is_asleep and any(phase not in (Phase.COMPLETED, Phase.FAILED) for phase in phases):
            sys.stderr.write("no cluster runs: this is how it was when it ended; paddlejob up goes on from here\n")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Raises KubeError where the cluster cannot be reached."""
        async with self._connection() as connection, Client(connection, user_agent=USER_AGENT) as client:
            yield client

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        if not self.is_embedded:
            yield load.load(self.kubeconfig, self.context)
            return
        async with AsyncExitStack() as stack:
            yield connection_to(await self._embedded(stack))

    async def _embedded(self, stack: AsyncExitStack) -> Cluster:
        """The cluster that runs, or an API server for now. Raises AlreadyRuns where another command has the folder."""
        from paddle_operator.embedded.cluster import api_server  # only here: it brings half of the program along

        for look in range(LOOKS, 0, -1):
            if running := self.state.running():
                return running
            try:
                return await stack.enter_async_context(api_server(self.state))
            except AlreadyRuns:  # a cluster that is starting or ending, or another command that only looks
                if look == 1:
                    raise
                await asyncio.sleep(LOOK_SECONDS)
        raise AssertionError("unreachable: the last look returns or raises")

    def namespace_of(self, client: Client) -> str:
        return self.namespace or client.connection.namespace


def connection_to(cluster: Cluster) -> PlainConnection:
    return PlainConnection(cluster.url, cluster.token)
