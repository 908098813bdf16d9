"""The embedded API server alone, on the stored objects: what a command needs to read and delete them.

It is not part of cluster.py because commands that find no running cluster start it, and need neither node nor operator.
"""

import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from paddle_operator.api.definition import KindDefinition
from paddle_operator.api.kinds import KINDS
from paddle_operator.embedded.custom_kind import custom_kind
from paddle_operator.embedded.state import RunningCluster, State
from paddle_operator.local.apiserver.http_server import LOOPBACK, ApiServer
from paddle_operator.local.apiserver.scheme import builtin
from paddle_operator.local.apiserver.scheme.kind import Kind
from paddle_operator.local.apiserver.serving_cert import certificate_pem
from paddle_operator.local.container_logs import LogFiles

Definitions = Sequence[KindDefinition[Any, Any]]


@asynccontextmanager
async def api_server(
    state: State, logs: LogFiles | None = None, kinds: Definitions = KINDS
) -> AsyncIterator[RunningCluster]:
    """Serve the stored objects. Raises AlreadyRunning."""
    logs = logs or LogFiles(state.directory)
    last = state.last_cluster()
    token = last.token if last else secrets.token_urlsafe(32)
    port, secure_port = (_reusable_port(url) for url in ((last.url, last.secure_url) if last else ("", "")))
    with state.hold_lock():
        server = ApiServer(
            state.directory, served_kinds(kinds), token=token, logs=logs, port=port, secure_port=secure_port
        )
        async with server:
            assert server.certificate
            certificate = certificate_pem(server.certificate)
            yield RunningCluster(server.url, token, os.getpid(), server.secure_url, certificate)


def served_kinds(kinds: Definitions = KINDS) -> list[Kind]:
    return [*builtin.BUILTIN_KINDS, *map(custom_kind, kinds)]


def _reusable_port(url: str) -> int:
    """The port of the last cluster, so that an exported kubeconfig remains valid; 0 if another process uses it."""
    port = urlsplit(url).port or 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return 0
    return port
