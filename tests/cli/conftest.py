"""A state folder and the command for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.paddlejob import Paddlejob, leaving_nothing


@pytest.fixture
async def paddlejob(tmp_path: Path) -> AsyncIterator[Paddlejob]:
    async with leaving_nothing(tmp_path / "state") as command:
        yield command
