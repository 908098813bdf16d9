"""How does a container become a process without root? In namespaces of its own, or plainly where the kernel refuses.

Each container has a shim, a small Python process (shim.py, 20 ms to start) that sees first when the supervisor or the
program dies. A container does not outlive the thread that started it: the kernel's death signal is bound to threads.
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
from paddle_operator.local.sandbox import shim
from paddle_operator.local.sandbox.cgroup import CgroupsUnavailable, MemoryCgroup, MemoryCgroups
from paddle_operator.local.sandbox.rootfs import rootfs_steps

_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_EXIT_POLL_SECONDS = 0.005


class ContainerProcess:
    """A running container; see cri.Process."""

    def __init__(
        self, shim_process: "subprocess.Popen[bytes]", channel: socket.socket, cgroup: MemoryCgroup | None
    ) -> None:
        self.pid = 0
        self.out_of_memory = False
        self._shim, self._channel, self._cgroup = shim_process, channel, cgroup
        self._buffer = b""
        self._exit_code: int | None = None
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(channel, self._read_reports)

    async def start(self, spec: bytes) -> None:
        """Send the spec to the shim and wait until the program runs. Raises StartError."""
        with suppress(OSError):  # if the shim has died, _finish fails the start
            await self._loop.sock_sendall(self._channel, spec)
        await asyncio.shield(self._started)

    async def wait(self) -> int:
        await asyncio.shield(self._exited)
        # Only if the shim was killed: nothing else reports when the death signal has reached the program.
        while self._exit_code is None and is_alive(self.pid):  # noqa: ASYNC110
            await asyncio.sleep(_EXIT_POLL_SECONDS)
        return 128 + 9 if self._exit_code is None else self._exit_code

    def terminate(self) -> None:
        self._request(shim.REQUEST_TERMINATE)

    def kill(self) -> None:
        self._request(shim.REQUEST_KILL)

    def close_requests(self) -> None:
        """Send EOF: the shim kills the program, even if it has not read the whole spec yet."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def _request(self, request: bytes) -> None:
        with suppress(OSError):  # it has exited
            self._channel.send(request)

    def _read_reports(self) -> None:
        try:
            part = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self._buffer += part
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._handle_report(line.decode())
        if not part:
            self._finish()

    def _handle_report(self, line: str) -> None:
        report_type, _, value = line.partition(" ")
        if report_type == "started":
            self.pid = int(value)
            self._started.set_result(None)
        elif report_type == "exited":
            self._exit_code = int(value)
        elif report_type == "failed":
            self._fail_start(StartError(value))

    def _fail_start(self, error: StartError) -> None:
        self._started.set_exception(error)
        self._started.exception()  # retrieved, so that asyncio does not warn if start() was cancelled

    def _finish(self) -> None:
        self._loop.remove_reader(self._channel)
        self._channel.close()
        self._shim.wait()  # it has closed its socket, so it exits now
        if self._cgroup:
            self.out_of_memory = self._cgroup.out_of_memory()
            self._cgroup.remove()
        if not self._started.done():
            self._fail_start(StartError("the process that prepares the container was killed"))
        self._exited.set_result(None)


class LocalSandbox:
    """What both sandboxes share. `limitations` has a message for each feature that containers lack on this host."""

    def __init__(self, limitations: Sequence[str] = ()) -> None:
        self.limitations = list(limitations)
        self._cgroups: MemoryCgroups | None = None
        try:
            self._cgroups = MemoryCgroups()
        except CgroupsUnavailable as reason:
            self.limitations.append(f"Memory limits of containers are not enforced, because {reason}.")

    async def start(self, command: Command, output: int) -> ContainerProcess:
        try:
            spec = await asyncio.to_thread(self.spec, command)
        except OSError as error:
            raise StartError(f"cannot create the container's directories: {error}") from None
        return await _start(spec, output, self._create_cgroup(command.memory_bytes))

    def spec(self, command: Command) -> dict[str, Any]:
        """What shim.py needs to start the command. Raises StartError."""
        raise NotImplementedError

    def _create_cgroup(self, limit_bytes: int | None) -> MemoryCgroup | None:
        try:
            return self._cgroups.create(limit_bytes) if self._cgroups and limit_bytes else None
        except OSError as error:
            raise StartError(f"cannot set a memory limit of {limit_bytes} bytes: {error.strerror}") from None


class NamespaceSandbox(LocalSandbox):
    def __init__(self, read_only_paths: Sequence[Path] = ()) -> None:
        """`read_only_paths` are directories that every container may read and none may change, such as the cache."""
        super().__init__()
        self._read_only_paths = [*read_only_paths, *_hidden_interpreter_directories()]

    def spec(self, command: Command) -> dict[str, Any]:
        return _container_spec(
            command,
            namespaces=True,
            steps=rootfs_steps(command, self._read_only_paths),
            directory=command.working_directory,
            map_all_users=os.geteuid() == 0 and command.user == 0,
        )


class PlainSandbox(LocalSandbox):
    def __init__(self, reason: str) -> None:
        super().__init__(
            [
                f"Containers run as plain processes, because {reason}: they see the host's files and processes, "
                "volumes are not at their mount paths (only the working directory and the program are looked for in "
                "them), and /tmp, /etc/hosts and the host name are the host's."
            ]
        )

    def spec(self, command: Command) -> dict[str, Any]:
        return _plain_spec(command)


async def detect_sandbox(read_only_paths: Sequence[Path] = ()) -> LocalSandbox:
    """Start a probe and return the strongest sandbox that this host supports."""
    if sys.platform != "linux":
        return PlainSandbox(f"{platform.system()} has no namespaces")
    sandbox = NamespaceSandbox(read_only_paths)
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
        sandbox.limitations.append(
            "Containers see the host's processes in /proc, because parts of /proc are masked here."
        )
    return sandbox


async def start_plain_process(command: Command, output: int) -> ContainerProcess:
    """Run a program of the host; neither it nor its children outlive this process. Raises StartError."""
    return await _start(_plain_spec(command), output, None)


def host_path(path: str, command: Command) -> str:
    """Map a container path to a host path through the nearest mount; other paths stay as they are."""
    mounts = [mount for mount in command.mounts if f"{path}/".startswith(mount.target.rstrip("/") + "/")]
    if not mounts:
        return path
    nearest = max(mounts, key=lambda mount: len(mount.target))
    return str(nearest.source / path[len(nearest.target.rstrip("/")) :].lstrip("/"))


def _plain_spec(command: Command) -> dict[str, Any]:
    environment = dict(command.environment)
    if command.scratch:
        temporary = command.scratch / "tmp-0"
        temporary.mkdir(parents=True, exist_ok=True)
        environment.setdefault("TMPDIR", str(temporary))
    program = [host_path(argument, command) for argument in command.arguments[:1]]
    arguments = (*program, *command.arguments[1:])
    return _container_spec(
        replace(command, arguments=arguments, environment=environment), host_path(command.working_directory, command)
    )


def _container_spec(
    command: Command,
    directory: str,
    namespaces: bool = False,
    steps: Sequence[tuple[str, ...]] = (),
    map_all_users: bool = False,
) -> dict[str, Any]:
    if not command.arguments:
        raise StartError("no command specified: give the container a command, or its image an ENTRYPOINT or CMD")
    return {
        "namespaces": namespaces,
        "map_all_users": map_all_users,
        "steps": list(steps),
        "user": command.user,
        "host_name": command.host_name,
        "directory": directory,
        "arguments": list(command.arguments),
        "environment": {"PATH": DEFAULT_PATH, **command.environment},
    }


async def _start(spec: dict[str, Any], output: int, cgroup: MemoryCgroup | None) -> ContainerProcess:
    spec = {**spec, "parent": os.getpid(), "memory_group": str(cgroup.procs_file) if cgroup else ""}
    try:
        container = _spawn_shim(output, cgroup)
    except OSError as error:
        if cgroup:
            cgroup.remove()
        raise StartError(f"the host cannot start another process: {error.strerror}") from None
    text = marshal.dumps(spec)
    try:
        await container.start(len(text).to_bytes(8, "big") + text)
    except BaseException:  # failed or cancelled: no process is left when the exception propagates
        container.close_requests()
        await container.wait()
        raise
    return container


def _spawn_shim(output: int, cgroup: MemoryCgroup | None) -> ContainerProcess:
    with ExitStack() as sockets:
        own_end, shim_end = map(sockets.enter_context, socket.socketpair())
        own_end.setblocking(False)
        shim_process = subprocess.Popen(  # noqa: S603 -- asyncio's subprocesses need a thread each
            [sys.executable, "-I", "-S", "-X", "utf8", _shim_program(), str(shim_end.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={},
            pass_fds=(shim_end.fileno(),),
        )
        sockets.pop_all()
    shim_end.close()
    return ContainerProcess(shim_process, own_end, cgroup)


def _shim_program() -> str:
    """shim.py, or its cached bytecode: compiling takes as long as the rest of its start-up."""
    source, compiled = shim.__file__, importlib.util.cache_from_source(shim.__file__)
    with suppress(OSError), open(compiled, "rb") as file:
        modified_at = int(os.stat(source).st_mtime) & 0xFFFFFFFF
        if file.read(12)[4:] == bytes(4) + modified_at.to_bytes(4, "little"):  # as the import system asks, PEP 552
            return compiled
    return source


def _hidden_interpreter_directories() -> list[Path]:
    """Directories of this Python that the container's own /tmp would hide."""
    hidden = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 -- the container's
    own = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return [path for path in own if any(path.is_relative_to(other) for other in hidden)]


def _apparmor_hint() -> str:
    with suppress(OSError):
        if _APPARMOR.read_text().strip() == "1" and os.geteuid():
            return f" (AppArmor forbids it to ordinary users, as long as {_APPARMOR} is 1)"
    return ""


def is_alive(pid: int) -> bool:
    """A zombie is not alive: it may remain for ever where no init process reaps orphans, as in many containers."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
