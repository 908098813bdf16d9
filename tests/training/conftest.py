"""A state directory and the paddlejob command for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.paddlejob import Paddlejob, open_paddlejob

RUN_TIMEOUT_SECONDS = 500.0  # the first run installs Paddle


@pytest.fixture
async def paddlejob(tmp_path: Path) -> AsyncIterator[Paddlejob]:
    async with open_paddlejob(tmp_path / "state", RUN_TIMEOUT_SECONDS) as command:
        yield command
