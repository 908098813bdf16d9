from collections.abc import AsyncIterator

import pytest

from paddle_operator.kube.client import Client
from testbed.control_plane import ControlPlane


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.connection()) as client:
        yield client
