"""A state folder and the command for each test; whatever a test leaves running is a failure of its own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.training.command import Paddlejob, processes_of


@pytest.fixture
async def paddlejob(tmp_path: Path) -> AsyncIterator[Paddlejob]:
    command = Paddlejob(tmp_path / "state")
    yield command
    await command("down")
    async with asyncio.timeout(20):
        while left := processes_of(command.state):
            await asyncio.sleep(0.05)
    assert not left
