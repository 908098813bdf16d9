"""What all benchmark programs share: options, exit, concurrency, and reading CPU time and memory.

A program gets its options as one JSON argument and prints its figures as lines of JSON. It exits when it is finished,
at its deadline, or when its parent has exited: EOF on standard input, which happens even if the parent is killed.
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


class ParentProcess:
    """The parent process, at the other end of standard input."""

    def __init__(self, on_parent_exit: Callable[[], object]) -> None:
        self._on_parent_exit = on_parent_exit
        self._signals = asyncio.Semaphore(0)

    async def wait_for_signal(self) -> None:
        """Wait until the parent signals to continue."""
        await self._signals.acquire()

    def read_signals(self) -> None:
        signals = os.read(sys.stdin.fileno(), 100)
        for _ in signals:
            self._signals.release()
        if not signals:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._on_parent_exit()


O = TypeVar("O", bound=Options)  # noqa: E741
Work = Callable[[O, ParentProcess], Coroutine[Any, Any, None]]


def run(options: type[O], work: Work[O]) -> None:
    """Run a program's work with the options of the command line."""
    uvloop.run(_work_until_parent_exits(work, msgspec.json.decode(sys.argv[1], type=options)))


async def _work_until_parent_exits(work: Work[O], arguments: O) -> None:
    parent_exited = asyncio.Event()
    parent = ParentProcess(parent_exited.set)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), parent.read_signals)
    task, exit_task = asyncio.ensure_future(work(arguments, parent)), asyncio.ensure_future(parent_exited.wait())
    await asyncio.wait((task, exit_task), timeout=DEADLINE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        sys.exit("the parent exited before everything was measured")
    exit_task.cancel()
    await task


def print_figures(**figures: float) -> None:
    print(msgspec.json.encode(figures).decode(), flush=True)


def make_client(options: Options, user_agent: str = "paddle-operator") -> Client:
    """A client configured as the operator's: kubeconfig, token, TLS."""
    return Client(load.load(Path(options.kubeconfig)), max_in_flight=IN_FLIGHT, user_agent=user_agent)


@asynccontextmanager
async def aiohttp_session(options: Options) -> AsyncIterator[aiohttp.ClientSession]:
    """A bare aiohttp session with the same server, user and TLS."""
    connection = load.load(Path(options.kubeconfig))
    context = await connection.tls()
    assert context, "the control plane must serve TLS"
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **await connection.headers()}
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connection.server, connector=connector, headers=headers, timeout=timeout, auto_decompress=False
    ) as session:
        yield session


async def run_concurrently(numbers: Iterable[int], action: Callable[[int], Awaitable[Any]]) -> None:
    """Run the action for every number, IN_FLIGHT at a time."""
    pending = iter(numbers)

    async def worker() -> None:
        for number in pending:
            await action(number)

    async with asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(worker())


def resident_megabytes(process: int | str = "self") -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def peak_megabytes(process: int | str = "self") -> float:
    """Not ru_maxrss, which a process inherits from its parent on Linux."""
    status = Path(f"/proc/{process}/status").read_text()
    kibibytes = int(status.partition("VmHWM:")[2].split()[0])
    return kibibytes * 1024 / MEGABYTE


def cpu_seconds(process: int) -> float:
    """User and system CPU time of another process."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
