"""A local API server of the test, and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client
from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from testbed.clock import FakeClock
from tests.local.apiserver.helpers import TOKEN, client_of


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(tmp_path: Path, clock: FakeClock) -> AsyncIterator[ApiServer]:
    """Its clock only moves when the test advances it."""
    async with ApiServer(tmp_path / "state", BUILTIN_KINDS, token=TOKEN, clock=clock) as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client
