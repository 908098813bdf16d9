"""After kill -9 at any moment every acknowledged write is stored, and versions never decrease."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.errors import KubeError, Unreachable
from paddle_operator.kube.objects import CONFIG_MAPS, Key
from tests.conftest import print_line
from tests.local.apiserver.helpers import TOKEN, make_config_map, wait_until

ROUNDS = 6
WRITERS = 8
PROGRAM = """
import asyncio, sys
from pathlib import Path
from paddle_operator.local.apiserver.scheme.builtin import BUILTIN_KINDS
from paddle_operator.local.apiserver.http_server import ApiServer

async def main():
    async with ApiServer(Path(sys.argv[1]), BUILTIN_KINDS, token=sys.argv[2]) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def start_server(directory: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Client]]:
    """A server in its own process, and a client that does not retry."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(directory), TOKEN, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        url = (await asyncio.wait_for(process.stdout.readline(), 100)).decode().strip()
        async with Client(StaticServerConfig(url, TOKEN), max_in_flight=WRITERS) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Ledger:
    """The acknowledged writes: the newest version of each name, None if deleted."""

    def __init__(self) -> None:
        self.known: dict[str, int | None] = {}
        self.unacknowledged: set[str] = set()  # the last write has no response: both results are valid
        self.newest_version = 0

    async def write(self, client: Client, writer: int, dice: random.Random) -> None:
        """Write until the server is killed."""
        number = 0
        while True:
            number += 1
            name = f"m{writer}-{dice.randrange(40)}"
            try:
                await self._write_once(client, name, number)
            except Unreachable:
                self.unacknowledged.add(name)
                return

    async def _write_once(self, client: Client, name: str, number: int) -> None:
        key = Key("default", name)
        if self.known.get(name) is None:
            created = await client.create(CONFIG_MAPS, make_config_map(name))
            self.known[name] = created.version
        elif number % 3:
            merged = await client.merge(CONFIG_MAPS, key, {"data": {"number": str(number), "padding": "x" * 2000}})
            self.known[name] = merged.version
        else:
            await client.delete(CONFIG_MAPS, key)
            self.known[name] = None
        self.newest_version = max(self.newest_version, self.known[name] or 0)


async def test_every_acknowledged_write_survives_a_kill(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("randomly_seed", None) or random.randrange(2**32)
    print_line(pytestconfig, f"durability: seed {seed}")
    dice, ledger, acknowledged = random.Random(seed), Ledger(), 0
    for _ in range(ROUNDS):
        async with start_server(tmp_path) as (process, client):
            await check_writes(client, ledger)
            writers = [
                asyncio.ensure_future(ledger.write(client, writer, random.Random(dice.random())))
                for writer in range(WRITERS)
            ]
            enough = ledger.newest_version + 20  # however slow the disk is
            await wait_until(lambda enough=enough: ledger.newest_version >= enough)  # type: ignore[misc]
            await asyncio.sleep(dice.uniform(0, 0.5))  # a kill at a random moment
            os.kill(process.pid, signal.SIGKILL)
            await asyncio.gather(*writers)
        acknowledged = max(acknowledged, ledger.newest_version)
    async with start_server(tmp_path) as (_, client):
        await check_writes(client, ledger)
    assert acknowledged > 100, "too few writes before the kills"


async def check_writes(client: Client, ledger: Ledger) -> None:
    stored = {each.key.name: each.version for each in await client.list_all(CONFIG_MAPS, Scope("default"))}
    for name, version in ledger.known.items():
        if name in ledger.unacknowledged:
            assert version is None or stored.get(name, version) >= version
        else:
            assert stored.get(name) == version, name
    for name in ledger.unacknowledged:
        ledger.known[name] = stored.get(name)
    ledger.unacknowledged.clear()
    try:
        written = await client.create(CONFIG_MAPS, make_config_map("newest"))
    except KubeError:
        written = await client.merge(
            CONFIG_MAPS, Key("default", "newest"), {"data": {"after": str(ledger.newest_version)}}
        )
    assert written.version > ledger.newest_version, "versions never decrease"
    ledger.newest_version = written.version
