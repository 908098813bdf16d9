"""How does a container become a process without root? In namespaces of its own, or plainly where the kernel refuses.

Each container has a keeper, a small Python (inside.py, 20 ms to start) that is the first to know when the supervisor or
the program dies. A container does not outlive the thread that started it, which the kernel's death signal follows.
"""

import asyncio
import importlib.util
import marshal
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddle_operator.local.cri import DEFAULT_PATH, Command, StartError
from paddle_operator.local.sandbox import init_process
from paddle_operator.local.sandbox.cgroup import MemoryGroup, MemoryGroups, NoGroups
from paddle_operator.local.sandbox.rootfs import steps

_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_MOMENT = 0.005


class Contained:
    """A running container; see container.Process."""

    def __init__(self, keeper: "subprocess.Popen[bytes]", channel: socket.socket, group: MemoryGroup | None) -> None:
        self.pid = 0
        self.out_of_memory = False
        self._keeper, self._channel, self._group = keeper, channel, group
        self._heard = b""
        self._code: int | None = None
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(channel, self._hear)

    async def started(self, order: bytes) -> None:
        """Raises StartError."""
        with suppress(OSError):  # a keeper that is gone is heard of below
            await self._loop.sock_sendall(self._channel, order)
        await asyncio.shield(self._started)

    async def wait(self) -> int:
        await asyncio.shield(self._ended)
        # Only after a keeper was killed: its death signal is on its way, and nobody else tells when it has arrived.
        while self._code is None and lives(self.pid):  # noqa: ASYNC110
            await asyncio.sleep(_MOMENT)
        return 128 + 9 if self._code is None else self._code

    def terminate(self) -> None:
        self._ask(init_process.STOP)

    def kill(self) -> None:
        self._ask(init_process.KILL)

    def give_up(self) -> None:
        """The end of all orders, which a keeper understands even where it has not heard the first one whole."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def _ask(self, request: bytes) -> None:
        with suppress(OSError):  # it has ended
            self._channel.send(request)

    def _hear(self) -> None:
        try:
            part = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._heard += part
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            self._learn(line.decode())
        if not part:
            self._end()

    def _learn(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        if what == "started":
            self.pid = int(rest)
            self._started.set_result(None)
        elif what == "exited":
            self._code = int(rest)
        elif what == "failed":
            self._refuse(StartError(rest))

    def _refuse(self, error: StartError) -> None:
        self._started.set_exception(error)
        self._started.exception()  # it may be that nobody waits for it any more

    def _end(self) -> None:
        self._loop.remove_reader(self._channel)
        self._channel.close()
        self._keeper.wait()  # it has closed its side, so that it is ending or dead
        if self._group:
            self.out_of_memory = self._group.out_of_memory()
            self._group.remove()
        if not self._started.done():
            self._refuse(StartError("the process that prepares the container was killed"))
        self._ended.set_result(None)


class LocalSandbox:
    """What both sandboxes share. `notes` has a sentence for each thing that a container lacks on this machine."""

    def __init__(self, notes: Sequence[str] = ()) -> None:
        self.notes = list(notes)
        self._groups: MemoryGroups | None = None
        try:
            self._groups = MemoryGroups()
        except NoGroups as reason:
            self.notes.append(f"Memory limits of containers are not enforced, because {reason}.")

    async def start(self, command: Command, output: int) -> Contained:
        try:
            order = await asyncio.to_thread(self.order, command)
        except OSError as error:
            raise StartError(f"the container's folders cannot be made: {error}") from None
        return await _started(order, output, self._group(command.memory_bytes))

    def order(self, command: Command) -> dict[str, Any]:
        """What inside.py is told. Raises StartError."""
        raise NotImplementedError

    def _group(self, limit_bytes: int | None) -> MemoryGroup | None:
        try:
            return self._groups.make(limit_bytes) if self._groups and limit_bytes else None
        except OSError as error:
            raise StartError(f"a memory limit of {limit_bytes} bytes cannot be set: {error.strerror}") from None


class NamespaceSandbox(LocalSandbox):
    def __init__(self, shown: Sequence[Path] = ()) -> None:
        """`shown` are folders that every container may read and none may change, such as the cache of environments."""
        super().__init__()
        self._shown = [*shown, *_interpreters_own()]

    def order(self, command: Command) -> dict[str, Any]:
        return _order(
            command,
            namespaces=True,
            steps=steps(command, self._shown),
            directory=command.working_directory,
            every_user=os.geteuid() == 0 and command.user == 0,
        )


class PlainSandbox(LocalSandbox):
    def __init__(self, reason: str) -> None:
        super().__init__(
            [
                f"Containers run as plain processes, because {reason}: they see the machine's files and processes, "
                "volumes are not at their mount paths (only the working directory and the program are looked for in "
                "them), and /tmp, /etc/hosts and the host name are the machine's."
            ]
        )

    def order(self, command: Command) -> dict[str, Any]:
        return _plain_order(command)


async def machine_sandbox(shown: Sequence[Path] = ()) -> LocalSandbox:
    """The best that this machine allows; its notes say what that lacks."""
    if sys.platform != "linux":
        return PlainSandbox(f"{platform.system()} has no namespaces")
    sandbox = NamespaceSandbox(shown)
    command = Command(("cat", "/proc/1/comm"), {}, host_name="probe", hosts="127.0.0.1 localhost\n")
    try:
        with tempfile.TemporaryFile() as output:
            process = await sandbox.start(command, output.fileno())
            code = await process.wait()
            output.seek(0)
            first_process = output.read()
    except StartError as error:
        return PlainSandbox(f"{error}{_apparmor_hint()}")
    if code:
        return PlainSandbox(f"`cat /proc/1/comm` ended with {code} in namespaces of its own")
    if first_process != b"cat\n":
        sandbox.notes.append(
            "Containers see the machine's processes in /proc, because parts of that are hidden from us."
        )
    return sandbox


async def started_plainly(command: Command, output: int) -> Contained:
    """A program of the machine's own that must not outlive us, with all that it starts. Raises StartError."""
    return await _started(_plain_order(command), output, None)


def behind(path: str, command: Command) -> str:
    """Where a container's path is on the machine, as far as its volumes tell."""
    mounts = [mount for mount in command.mounts if f"{path}/".startswith(mount.target.rstrip("/") + "/")]
    if not mounts:
        return path
    nearest = max(mounts, key=lambda mount: len(mount.target))
    return str(nearest.source / path[len(nearest.target.rstrip("/")) :].lstrip("/"))


def _plain_order(command: Command) -> dict[str, Any]:
    environment = dict(command.environment)
    if command.scratch:
        temporary = command.scratch / "tmp-0"
        temporary.mkdir(parents=True, exist_ok=True)
        environment.setdefault("TMPDIR", str(temporary))
    moved = [behind(argument, command) for argument in command.arguments[:1]]
    arguments = (*moved, *command.arguments[1:])
    return _order(
        replace(command, arguments=arguments, environment=environment), behind(command.working_directory, command)
    )


def _order(
    command: Command,
    directory: str,
    namespaces: bool = False,
    steps: Sequence[tuple[str, ...]] = (),
    every_user: bool = False,
) -> dict[str, Any]:
    if not command.arguments:
        raise StartError("no command specified: give the container a command, or its image an ENTRYPOINT or CMD")
    return {
        "namespaces": namespaces,
        "every_user": every_user,
        "steps": list(steps),
        "user": command.user,
        "host_name": command.host_name,
        "directory": directory,
        "arguments": list(command.arguments),
        "environment": {"PATH": DEFAULT_PATH, **command.environment},
    }


async def _started(order: dict[str, Any], output: int, group: MemoryGroup | None) -> Contained:
    order = {**order, "parent": os.getpid(), "memory_group": str(group.members) if group else ""}
    try:
        contained = _keeper_of(output, group)
    except OSError as error:
        if group:
            group.remove()
        raise StartError(f"this machine refuses another process: {error.strerror}") from None
    text = marshal.dumps(order)
    try:
        await contained.started(len(text).to_bytes(8, "big") + text)
    except BaseException:  # refused, or called off: either way nothing is left when this is told
        contained.give_up()
        await contained.wait()
        raise
    return contained


def _keeper_of(output: int, group: MemoryGroup | None) -> Contained:
    with ExitStack() as unless_started:
        ours, theirs = map(unless_started.enter_context, socket.socketpair())
        ours.setblocking(False)
        keeper = subprocess.Popen(  # noqa: S603 -- our own program; not asyncio's, which needs a thread for each
            [sys.executable, "-I", "-S", "-X", "utf8", _program(), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={},
            pass_fds=(theirs.fileno(),),
        )
        unless_started.pop_all()
    theirs.close()
    return Contained(keeper, ours, group)


def _program() -> str:
    """inside.py, compiled where that is at hand: to compile it takes as long as all the rest of its start."""
    source, compiled = init_process.__file__, importlib.util.cache_from_source(init_process.__file__)
    with suppress(OSError), open(compiled, "rb") as file:
        made_at = int(os.stat(source).st_mtime) & 0xFFFFFFFF
        if file.read(12)[4:] == bytes(4) + made_at.to_bytes(4, "little"):  # as the import system asks, PEP 552
            return compiled
    return source


def _interpreters_own() -> list[Path]:
    """Where this Python stands, if the container's own /tmp would hide it."""
    hidden = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 -- the container's
    own = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return [path for path in own if any(path.is_relative_to(folder) for folder in hidden)]


def _apparmor_hint() -> str:
    with suppress(OSError):
        if _APPARMOR.read_text().strip() == "1" and os.geteuid():
            return f" (AppArmor forbids it to ordinary users, as long as {_APPARMOR} is 1)"
    return ""


def lives(pid: int) -> bool:
    """A zombie does not: it may stay one for ever where nobody reaps orphans, as in many a container."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
