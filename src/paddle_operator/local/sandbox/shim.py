"""The shim between the supervisor and a container's program, as containerd has one: it enters the container and execs.

Run as `python -I -S shim.py DESCRIPTOR` with a socket to the supervisor. The shim starts the program, forwards requests
to terminate or kill it, and reports its exit code. It lives as long as the container, so it imports little: its start
takes 14 ms of CPU, and 3 MB of its memory are not shared.
"""

import marshal
import os
import select
import sys
from ctypes import CDLL, get_errno

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing imports re and signal imports enum: together half of the start-up time
    import signal
    from typing import Any, NoReturn

    ShimSpec = dict[str, Any]
else:
    import _signal as signal

CLONE_NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000  # mount, UTS, IPC, user, PID
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}

HOST_ROOT, CONTAINER_ROOT = "/host", "/root"  # mount points of both roots while the container's is being built
REQUEST_TERMINATE, REQUEST_KILL = b"t", b"k"


class SetupError(Exception):
    """The container could not be set up; str() is the message."""


def main() -> None:
    channel = int(sys.argv[1])
    spec = receive_spec(channel)
    try:
        libc = CDLL(None, use_errno=True)
        prepare_shim(spec, libc)
        child = start_program(spec, libc, channel)
    except (SetupError, OSError) as error:
        report(channel, f"failed {error}")
        return
    report(channel, f"started {child}")
    code = supervise_program(channel, child, contained=spec["namespaces"])
    report(channel, f"exited {code if code >= 0 else 128 - code}")


def receive_spec(channel: int) -> "ShimSpec":
    text = b""
    while len(text) < 8 or len(text) < 8 + int.from_bytes(text[:8], "big"):
        part = os.read(channel, 1 << 16)
        if not part:
            os._exit(1)
        text += part
    spec: ShimSpec = marshal.loads(text[8:])  # noqa: S302 -- written by the parent process; json costs 4 ms here
    return spec


def report(channel: int, line: str) -> None:
    try:
        os.write(channel, line.replace("\n", " ").encode(errors="replace") + b"\n")
    except OSError:
        os._exit(1)  # the supervisor is gone


# The shim: prepared once, then it supervises the program.


def prepare_shim(spec: "ShimSpec", libc: CDLL) -> None:
    os.umask(0o022)
    os.setsid()  # so that Ctrl-C on the supervisor's terminal does not reach the container
    if spec["namespaces"]:
        die_with_parent(libc)
        enter_namespaces(spec, libc)
        die_with_parent(libc)  # again: the kernel clears the death signal when credentials change
    elif sys.platform == "linux":
        # No death signal here: the shim must outlive its supervisor until it has killed the remaining processes.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != spec["parent"]:
        os._exit(1)


def die_with_parent(libc: CDLL) -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def enter_namespaces(spec: "ShimSpec", libc: CDLL) -> None:
    """Enter new namespaces: root maps every uid, since its files may have any owner. Raises SetupError."""
    user, group = os.geteuid(), os.getegid()
    writer, proceed_writer = fork_map_writer() if spec["map_all_users"] else (0, -1)
    if libc.unshare(CLONE_NEW_NAMESPACES):
        raise SetupError(f"the kernel refuses new namespaces (unshare: {os.strerror(get_errno())})")
    try:
        if writer:
            os.write(proceed_writer, b".")
            if os.waitpid(writer, 0)[1]:
                raise SetupError("the kernel refuses to map all users (/proc/PID/uid_map)")
        else:
            write_text("/proc/self/setgroups", "deny")
            write_text("/proc/self/uid_map", f"{spec['user']} {user} 1")
            write_text("/proc/self/gid_map", f"0 {group} 1")
    except OSError as error:
        raise SetupError(f"the kernel refuses to map users ({error.filename}: {error.strerror})") from None


def fork_map_writer() -> tuple[int, int]:
    """Fork a process that stays in the parent namespace, since only a privileged process there may map other uids.

    It writes the maps once a byte arrives on the returned descriptor.
    """
    shim_pid = os.getpid()
    proceed_reader, proceed_writer = os.pipe()
    writer = os.fork()
    if writer:
        os.close(proceed_reader)
        return writer, proceed_writer
    os.close(proceed_writer)
    try:
        os.read(proceed_reader, 1)
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/self/{kind}") as file:
                extents = [line.split() for line in file]
            write_text(f"/proc/{shim_pid}/{kind}", "".join(f"{first} {first} {count}\n" for first, _, count in extents))
        os._exit(0)
    except OSError:
        os._exit(1)


def write_text(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)


def start_program(spec: "ShimSpec", libc: CDLL, channel: int) -> int:
    """Return the program's pid. Raises SetupError if it could not be started."""
    error_reader, error_writer = os.pipe()
    liveness_reader, liveness_writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            for descriptor in (channel, error_reader, liveness_writer):
                os.close(descriptor)
            if sys.platform == "linux":
                die_with_parent(libc)
            os.set_blocking(liveness_reader, False)
            exit_if_closed(liveness_reader)
            exec_program(spec, libc)
        except Exception as error:  # noqa: BLE001 -- a bug here must not look like a program that exits 1
            os.write(error_writer, str(error).encode(errors="replace")[:4096])
        finally:
            os._exit(1)
    os.close(error_writer)
    os.close(liveness_reader)
    text = b""
    while part := os.read(error_reader, 4096):  # EOF comes with exec, which closes the writer
        text += part
    os.close(error_reader)
    if text:
        os.waitpid(child, 0)
        raise SetupError(text.decode(errors="replace"))
    return child


def exit_if_closed(pipe: int) -> None:
    """The shim may have died before its child set a death signal; in its namespace the child cannot see that pid."""
    try:
        os.read(pipe, 1)
    except BlockingIOError:
        return
    os._exit(1)


def supervise_program(channel: int, child: int, contained: bool) -> int:
    """Return the child's exit code as subprocess spells it, once no process of the container is left."""
    wakeup_reader, wakeup_writer = os.pipe()
    for end in (wakeup_reader, wakeup_writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    poller.register(wakeup_reader, select.POLLIN)
    while (code := reap_children(child)) is None:
        for descriptor, _ in poller.poll():
            request = os.read(descriptor, 512)
            if descriptor == wakeup_reader:
                continue
            if REQUEST_TERMINATE in request:
                os.kill(child, signal.SIGTERM)
            if not request or REQUEST_KILL in request:  # EOF: the supervisor has died
                os.kill(child, signal.SIGKILL)
                if not contained:
                    kill_descendants(child)
                poller.unregister(channel)
    if not contained:
        kill_remaining(child)
    return code


def reap_children(child: int) -> int | None:
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if not pid:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)


def kill_remaining(session: int) -> None:
    """Without a PID namespace: the shim is the subreaper, so it has children as long as any process is left."""
    while True:
        kill_descendants(session)
        try:
            if sys.platform == "linux":
                os.waitpid(-1, 0)
            else:
                return  # there is no subreaper: the session was all that can be found
        except ChildProcessError:
            return


def kill_descendants(session: int) -> None:
    if sys.platform != "linux":
        send_kill(-session)
        return
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it has exited
            children.setdefault(parent, []).append(int(name))
    pending = list(children.get(os.getpid(), ()))
    while pending:
        pid = pending.pop()
        pending += children.get(pid, ())
        send_kill(pid)


def send_kill(pid: int) -> None:
    try:  # noqa: SIM105 -- contextlib costs 3 ms here
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # it has exited


# The child: from a fork of the shim to the container's program.


def exec_program(spec: "ShimSpec", libc: CDLL) -> "NoReturn":
    os.setsid()  # otherwise a program that signals its own process group kills the shim
    if spec["memory_group"]:
        write_text(spec["memory_group"], "0")
    if spec["namespaces"]:
        build_rootfs(spec["steps"], libc)
        name = spec["host_name"].encode()
        if name and libc.sethostname(name, len(name)):
            raise SetupError(f"cannot set the host name {spec['host_name']}: {os.strerror(get_errno())}")
    try:
        os.chdir(spec["directory"])
    except OSError as error:
        raise SetupError(f'chdir to "{spec["directory"]}" failed: {lowercase_message(error)}') from None
    program = resolve_program(spec["arguments"][0], spec["environment"])
    for number in range(1, 32):  # exec passes ignored signals on: Python's SIGPIPE, or a background shell's SIGQUIT
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(program, spec["arguments"], spec["environment"])  # noqa: S606 -- a container's command
    except OSError as error:
        raise SetupError(f"exec {program}: {lowercase_message(error)}") from None


def resolve_program(name: str, environment: dict[str, str]) -> str:
    """Find the program in the container's PATH. Raises SetupError with a container engine's message."""
    if "/" in name:
        try:
            is_directory = os.stat(name).st_mode & 0o170000 == 0o040000
        except OSError as error:
            raise SetupError(f'exec: "{name}": stat {name}: {lowercase_message(error)}') from None
        if is_directory:
            raise SetupError(f'exec: "{name}": is a directory')
        if not os.access(name, os.X_OK):
            raise SetupError(f'exec: "{name}": permission denied')
        return name
    for directory in environment.get("PATH", "").split(":"):
        path = f"{directory or '.'}/{name}"
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise SetupError(f'exec: "{name}": executable file not found in $PATH')


def lowercase_message(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


# The root filesystem: the steps of rootfs.py, applied on a tmpfs that then becomes the root.


def build_rootfs(steps: list[tuple[str, ...]], libc: CDLL) -> None:
    base = next(path for path in ("/tmp", "/var", "/usr") if os.path.isdir(path))  # noqa: S108 -- covered, not used
    mount(libc, "tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for name in (HOST_ROOT, CONTAINER_ROOT):
        os.mkdir(base + name)
    pivot_root(libc, base, base + HOST_ROOT)
    os.chdir("/")
    mount(libc, "tmpfs", CONTAINER_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for step_number, (kind, target, *arguments) in enumerate(steps):
        try:
            apply_step(libc, kind, CONTAINER_ROOT + target, arguments, f"/text-{step_number}")
        except OSError as error:
            raise SetupError(f"cannot create {target} in the container ({kind}): {lowercase_message(error)}") from None
    os.chdir(CONTAINER_ROOT)
    pivot_root(libc, ".", ".")  # stacks the old root on the new one; "." is still the old one
    if libc.umount2(b".", MNT_DETACH):
        raise SetupError(f"cannot unmount the host's root: {os.strerror(get_errno())}")
    os.chdir("/")


def apply_step(libc: CDLL, kind: str, target: str, arguments: list[str], text_file: str) -> None:
    if kind == "directory":
        os.makedirs(target, exist_ok=True)
    elif kind == "file":
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    elif kind == "link":
        os.symlink(arguments[0], target)
    elif kind == "text":
        with open(text_file, "w") as file:
            file.write(arguments[0])
        mount(libc, text_file, target, "", MS_BIND, "")
    elif kind == "tmpfs":
        mount(libc, "tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, arguments[0])
    elif kind == "proc":
        try:
            mount(libc, "proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
        except OSError:  # parts of /proc are masked, as in most containers
            mount(libc, HOST_ROOT + "/proc", target, "", MS_BIND | MS_REC, "")
    elif kind == "overlay":
        source, upper, work = (HOST_ROOT + path for path in arguments)
        directories = {"lowerdir": source, "upperdir": upper, "workdir": work}
        options = ",".join(f"{name}={escape_overlay_path(path)}" for name, path in directories.items()) + ",userxattr"
        try:
            mount(libc, "overlay", target, "overlay", MS_NOSUID | MS_NODEV, options)
            os.chmod(f"{work}/work", 0o700)  # the kernel creates it so that an ordinary user cannot remove it
        except OSError:  # before Linux 5.11, or a file system that cannot be an overlay's upper one
            bind_mount(libc, "bind-read-only", source, target)
    else:
        bind_mount(libc, kind, HOST_ROOT + arguments[0], target)


def escape_overlay_path(path: str) -> str:
    """Escape commas, colons and backslashes, which separate the mount options of an overlay."""
    return "".join(f"\\{sign}" if sign in ",:\\" else sign for sign in path)


def bind_mount(libc: CDLL, kind: str, source: str, target: str) -> None:
    try:
        mount(libc, source, target, "", MS_BIND | MS_REC, "")
    except OSError:
        if kind != "bind-optional":  # the host's own, which a container can do without
            raise
    if kind == "bind-read-only":
        # Flags of the host's mount are locked in a user namespace: a remount that omits them gets EPERM.
        locked_flags = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount(libc, "none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | locked_flags, "")


def mount(libc: CDLL, source: str, target: str, kind: str, flags: int, options: str) -> None:
    encoded = [os.fsencode(text) for text in (source, target, kind, options)]
    if libc.mount(encoded[0], encoded[1], encoded[2] or None, flags, encoded[3] or None):
        error_number = get_errno()
        raise OSError(error_number, os.strerror(error_number), target)


def pivot_root(libc: CDLL, root: str, old: str) -> None:
    syscall_number = SYS_PIVOT_ROOT.get(os.uname().machine)
    if syscall_number is None:
        raise SetupError(f"the syscall number of pivot_root is unknown for {os.uname().machine}")
    if libc.syscall(syscall_number, os.fsencode(root), os.fsencode(old)):
        raise SetupError(f"the kernel refuses a new root (pivot_root: {os.strerror(get_errno())})")


if __name__ == "__main__":
    main()
