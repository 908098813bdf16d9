"""Which cluster does a command use? The embedded one, unless a kubeconfig or a context is named.

If the embedded cluster does not run, its API server alone is started for the length of the command: stored jobs can be
read and deleted, and nothing is run.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddle_operator.api.paddlejob import Phase
from paddle_operator.embedded.state import AlreadyRunning, RunningCluster, State
from paddle_operator.kube.client import Client
from paddle_operator.kube.config import load
from paddle_operator.kube.config.server import ServerConfig, StaticServerConfig

USER_AGENT = "paddlejob"
MAX_CONNECT_ATTEMPTS, CONNECT_RETRY_SECONDS = 40, 0.1


@dataclass(frozen=True)
class Target:
    state: State
    kubeconfig: Path | None = None
    context: str | None = None
    local: bool = False  # the embedded cluster even if KUBECONFIG is set
    namespace: str | None = None

    @property
    def is_embedded(self) -> bool:
        named = self.kubeconfig or self.context or os.environ.get("KUBECONFIG")
        if not named or self.local:
            return True
        return self._names_embedded_kubeconfig()

    def _names_embedded_kubeconfig(self) -> bool:
        """With the embedded cluster's own kubeconfig exported, its local options must work, too."""
        path = self.kubeconfig or Path(os.environ.get("KUBECONFIG", ""))
        return self.context is None and path.absolute() == self.state.kubeconfig

    @property
    def is_running(self) -> bool:
        """False for an embedded cluster that does not run: its stored jobs do not change."""
        return not self.is_embedded or self.state.running_cluster() is not None

    def warn_if_stopped(self, *phases: str) -> None:
        """Warn that unfinished jobs do not run while no cluster does."""
        if not self.is_running and any(phase not in (Phase.COMPLETED, Phase.FAILED) for phase in phases):
            sys.stderr.write(
                "no cluster is running: this is the state stored when it stopped; paddlejob up continues from it\n"
            )

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Raises KubeError if the cluster cannot be reached."""
        async with self._server_config() as connection, Client(connection, user_agent=USER_AGENT) as client:
            yield client

    @asynccontextmanager
    async def _server_config(self) -> AsyncIterator[ServerConfig]:
        if not self.is_embedded:
            yield load.load(self.kubeconfig, self.context)
            return
        async with AsyncExitStack() as stack:
            yield server_config(await self._embedded_cluster(stack))

    async def _embedded_cluster(self, stack: AsyncExitStack) -> RunningCluster:
        """The running cluster, or its API server alone. Raises AlreadyRunning if another command holds the lock."""
        from paddle_operator.embedded.api_server import api_server  # not needed if a cluster runs

        for attempt in range(1, MAX_CONNECT_ATTEMPTS + 1):
            if running := self.state.running_cluster():
                return running
            try:
                return await stack.enter_async_context(api_server(self.state))
            except AlreadyRunning:  # a cluster that starts or stops, or another command that only reads
                if attempt == MAX_CONNECT_ATTEMPTS:
                    raise
                await asyncio.sleep(CONNECT_RETRY_SECONDS)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def namespace_of(self, client: Client) -> str:
        return self.namespace or client.config.namespace


def server_config(cluster: RunningCluster) -> StaticServerConfig:
    return StaticServerConfig(cluster.url, cluster.token)
