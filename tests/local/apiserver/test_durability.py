"""kill -9 at any moment: every write that was acknowledged is there afterwards, and versions never go back."""

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
from paddle_operator.kube.config.server import PlainConnection
from paddle_operator.kube.errors import KubeError, Unreachable
from paddle_operator.kube.objects import CONFIG_MAPS, Key
from tests.conftest import say
from tests.local.apiserver.running import TOKEN, a_config_map, until

ROUNDS = 6
WRITERS = 8
PROGRAM = """
import asyncio, sys
from pathlib import Path
from paddle_operator.local.apiserver.scheme.builtin import KINDS
from paddle_operator.local.apiserver.http_server import ApiServer

async def main():
    async with ApiServer(Path(sys.argv[1]), KINDS, token=sys.argv[2]) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Client]]:
    """A server in a process of its own, and a client of it that tries nothing twice."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(folder), TOKEN, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        url = (await asyncio.wait_for(process.stdout.readline(), 100)).decode().strip()
        async with Client(PlainConnection(url, TOKEN), in_flight=WRITERS) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Ledger:
    """What the server has acknowledged: the newest version of each name, None where it was deleted."""

    def __init__(self) -> None:
        self.known: dict[str, int | None] = {}
        self.unsure: set[str] = set()  # the last deed was not answered: either is right
        self.newest = 0

    async def write(self, client: Client, writer: int, dice: random.Random) -> None:
        """Write until the server is gone."""
        number = 0
        while True:
            number += 1
            name = f"m{writer}-{dice.randrange(40)}"
            try:
                await self._once(client, name, number)
            except Unreachable:
                self.unsure.add(name)
                return

    async def _once(self, client: Client, name: str, number: int) -> None:
        key = Key("default", name)
        if self.known.get(name) is None:
            made = await client.create(CONFIG_MAPS, a_config_map(name))
            self.known[name] = made.version
        elif number % 3:
            done = await client.merge(CONFIG_MAPS, key, {"data": {"number": str(number), "filling": "x" * 2000}})
            self.known[name] = done.version
        else:
            await client.delete(CONFIG_MAPS, key)
            self.known[name] = None
        self.newest = max(self.newest, self.known[name] or 0)


async def test_every_acknowledged_write_survives_a_kill(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("randomly_seed", None) or random.randrange(2**32)
    say(pytestconfig, f"durability: seed {seed}")
    dice, ledger, acknowledged = random.Random(seed), Ledger(), 0
    for _ in range(ROUNDS):
        async with served(tmp_path) as (process, client):
            await check(client, ledger)
            writers = [
                asyncio.ensure_future(ledger.write(client, writer, random.Random(dice.random())))
                for writer in range(WRITERS)
            ]
            begun = ledger.newest
            await until(lambda begun=begun: ledger.newest >= begun + 20)  # type: ignore[misc]  # however slow the disk
            await asyncio.sleep(dice.uniform(0, 0.5))  # the moment is the point of the test
            os.kill(process.pid, signal.SIGKILL)
            await asyncio.gather(*writers)
        acknowledged = max(acknowledged, ledger.newest)
    async with served(tmp_path) as (_, client):
        await check(client, ledger)
    assert acknowledged > 100, "the server was not killed before it had done anything"


async def check(client: Client, ledger: Ledger) -> None:
    there = {each.key.name: each.version for each in await client.list_all(CONFIG_MAPS, Scope("default"))}
    for name, version in ledger.known.items():
        if name in ledger.unsure:
            assert version is None or there.get(name, version) >= version
        else:
            assert there.get(name) == version, name
    for name in ledger.unsure:
        ledger.known[name] = there.get(name)
    ledger.unsure.clear()
    try:
        made = await client.create(CONFIG_MAPS, a_config_map("newest"))
    except KubeError:
        made = await client.merge(CONFIG_MAPS, Key("default", "newest"), {"data": {"after": str(ledger.newest)}})
    assert made.version > ledger.newest, "versions never go back"
    ledger.newest = made.version
