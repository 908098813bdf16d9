"""What every program of a bench shares: its options, its end, its load, and its own CPU time and memory.

A program gets its options as one JSON argument and tells its figures as lines of JSON. It ends when it is finished,
when its starter is gone (the end of standard input, the one notice that even SIGKILL gives), or at its deadline.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
import uvloop

from paddle_operator.kube.client import Client
from paddle_operator.kube.config import load

IN_FLIGHT = 32
DEADLINE_SECONDS = 20 * 60.0
MEGABYTE = 1e6


class Options(msgspec.Struct, frozen=True, kw_only=True):
    kubeconfig: str
    namespace: str


class Starter:
    """The process that started us, at the other end of standard input."""

    def __init__(self, leave: Callable[[], object]) -> None:
        self._leave = leave
        self._words = asyncio.Semaphore(0)

    async def word(self) -> None:
        """Wait until it says that we may go on."""
        await self._words.acquire()

    def hear(self) -> None:
        said = os.read(sys.stdin.fileno(), 100)
        for _ in said:
            self._words.release()
        if not said:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._leave()


O = TypeVar("O", bound=Options)  # noqa: E741
Work = Callable[[O, Starter], Coroutine[Any, Any, None]]


def run(options: type[O], work: Work[O]) -> None:
    """Be a program: do the work with the options that were given on the command line."""
    uvloop.run(_work_until_left(work, msgspec.json.decode(sys.argv[1], type=options)))


async def _work_until_left(work: Work[O], asked: O) -> None:
    leaving = asyncio.Event()
    starter = Starter(leaving.set)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), starter.hear)
    task, left = asyncio.ensure_future(work(asked, starter)), asyncio.ensure_future(leaving.wait())
    await asyncio.wait((task, left), timeout=DEADLINE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        sys.exit("left before everything was measured")
    left.cancel()
    await task


def tell(**figures: float) -> None:
    print(msgspec.json.encode(figures).decode(), flush=True)


def client_of(options: Options, user_agent: str = "paddle-operator") -> Client:
    """A client as the operator has it: from a kubeconfig, by token, over TLS."""
    return Client(load.load(Path(options.kubeconfig)), in_flight=IN_FLIGHT, user_agent=user_agent)


@asynccontextmanager
async def bare_session(options: Options) -> AsyncIterator[aiohttp.ClientSession]:
    """The same server, user and TLS with nothing but aiohttp in between."""
    connection = load.load(Path(options.kubeconfig))
    context = await connection.tls()
    assert context, "the control plane of the tests speaks TLS"
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **await connection.headers()}
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connection.server, connector=connector, headers=headers, timeout=timeout, auto_decompress=False
    ) as session:
        yield session


async def each(numbers: Iterable[int], deed: Callable[[int], Awaitable[Any]]) -> None:
    """Do it for every number, IN_FLIGHT at a time."""
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            await deed(number)

    async with asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(work())


def resident_megabytes(process: int | str = "self") -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def peak_megabytes(process: int | str = "self") -> float:
    """Not ru_maxrss: Linux hands that down from the process that started us."""
    status = Path(f"/proc/{process}/status").read_text()
    kibibytes = int(status.partition("VmHWM:")[2].split()[0])
    return kibibytes * 1024 / MEGABYTE


def cpu_seconds(process: int) -> float:
    """What another process has used so far, by itself and in the kernel."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
