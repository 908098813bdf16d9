"""What stands between the supervisor and a container's program: how does a process come to be in its container?

Run as `python -I -S inside.py DESCRIPTOR` with a socket to the supervisor. This process, the keeper, starts the
program, passes on what the supervisor asks for and tells how it ended; it lives as long as the container, so it imports
little: 14 ms of CPU, 3 MB that it does not share.
"""

import marshal
import os
import select
import sys
from ctypes import CDLL, get_errno

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing imports re, signal imports enum: together half of this program's start
    import signal
    from typing import Any, NoReturn

    Order = dict[str, Any]
else:
    import _signal as signal

NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000  # mount, UTS, IPC, user, PID
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXECUTION, REMOUNT, BIND, RECURSIVE = 1, 2, 4, 8, 32, 4096, 16384
DETACH = 2
DEATH_SIGNAL, CHILD_SUBREAPER = 1, 36  # of prctl
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}

MACHINE, ROOT = "/machine", "/root"  # where the machine's root and the container's stand while the latter is made
STOP, KILL = b"t", b"k"  # what the supervisor asks for


class Refused(Exception):
    """str() is a sentence for people."""


def main() -> None:
    channel = int(sys.argv[1])
    order = read_order(channel)
    try:
        libc = CDLL(None, use_errno=True)
        prepare_keeper(order, libc)
        child, complaint = started(order, libc, channel)
    except (Refused, OSError) as error:
        tell(channel, f"failed {error}")
        return
    if complaint:
        os.waitpid(child, 0)
        tell(channel, f"failed {complaint}")
        return
    tell(channel, f"started {child}")
    code = keep(channel, child, contained=order["namespaces"])
    tell(channel, f"exited {code if code >= 0 else 128 - code}")


def read_order(channel: int) -> "Order":
    text = b""
    while len(text) < 8 or len(text) < 8 + int.from_bytes(text[:8], "big"):
        part = os.read(channel, 1 << 16)
        if not part:
            os._exit(1)
        text += part
    order: Order = marshal.loads(text[8:])  # noqa: S302 -- our own parent wrote it, and json costs 4 ms here
    return order


def tell(channel: int, line: str) -> None:
    try:
        os.write(channel, line.replace("\n", " ").encode(errors="replace") + b"\n")
    except OSError:
        os._exit(1)  # nobody is there to be told


# The keeper: once before the program, then as long as it lives.


def prepare_keeper(order: "Order", libc: CDLL) -> None:
    os.umask(0o022)
    os.setsid()  # a Ctrl-C on the supervisor's terminal is the supervisor's matter
    if order["namespaces"]:
        die_with_parent(libc)
        enter_namespaces(order, libc)
        die_with_parent(libc)  # again: the kernel forgets the wish when credentials change
    elif sys.platform == "linux":
        # No death signal here: this process outlives its supervisor by the moment that it takes to end the rest.
        libc.prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != order["parent"]:
        os._exit(1)


def die_with_parent(libc: CDLL) -> None:
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def enter_namespaces(order: "Order", libc: CDLL) -> None:
    """Raises Refused. Root keeps every uid, as its files may have any owner; others may map only themselves."""
    user, group = os.geteuid(), os.getegid()
    writer, go = map_writer() if order["every_user"] else (0, -1)
    if libc.unshare(NEW_NAMESPACES):
        raise Refused(f"the kernel refuses new namespaces (unshare: {os.strerror(get_errno())})")
    try:
        if writer:
            os.write(go, b".")
            if os.waitpid(writer, 0)[1]:
                raise Refused("the kernel refuses a map of all users (/proc/PID/uid_map)")
        else:
            write_text("/proc/self/setgroups", "deny")
            write_text("/proc/self/uid_map", f"{order['user']} {user} 1")
            write_text("/proc/self/gid_map", f"0 {group} 1")
    except OSError as error:
        raise Refused(f"the kernel refuses a map of users ({error.filename}: {error.strerror})") from None


def map_writer() -> tuple[int, int]:
    """A process that stays outside, since only who has rights there may map more than itself; a byte lets it go on."""
    keeper = os.getpid()
    await_go, go = os.pipe()
    writer = os.fork()
    if writer:
        os.close(await_go)
        return writer, go
    os.close(go)
    try:
        os.read(await_go, 1)
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/self/{kind}") as file:
                extents = [line.split() for line in file]
            write_text(f"/proc/{keeper}/{kind}", "".join(f"{first} {first} {count}\n" for first, _, count in extents))
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


def started(order: "Order", libc: CDLL, channel: int) -> tuple[int, str]:
    """The program's pid, and why it could not be started or nothing."""
    complaints, complain = os.pipe()
    keeper_lives, keeper_holds = os.pipe()
    child = os.fork()
    if not child:
        try:
            for descriptor in (channel, complaints, keeper_holds):
                os.close(descriptor)
            if sys.platform == "linux":
                die_with_parent(libc)
            os.set_blocking(keeper_lives, False)
            die_if_closed(keeper_lives)
            become(order, libc)
        except Exception as error:  # noqa: BLE001 -- a defect here must not look like a program that exits 1
            os.write(complain, str(error).encode(errors="replace")[:4096])
        finally:
            os._exit(1)
    os.close(complain)
    os.close(keeper_lives)
    text = b""
    while part := os.read(complaints, 4096):  # its end comes with exec, which closes the other side
        text += part
    os.close(complaints)
    return child, text.decode(errors="replace")


def die_if_closed(pipe: int) -> None:
    """The keeper may have died before its child asked for a death signal; in its namespace it sees no parent's pid."""
    try:
        os.read(pipe, 1)
    except BlockingIOError:
        return
    os._exit(1)


def keep(channel: int, child: int, contained: bool) -> int:
    """How the child ended, as subprocess spells it. Nothing that it started is left then."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asked = select.poll()
    asked.register(channel, select.POLLIN)
    asked.register(woken, select.POLLIN)
    while (code := reaped(child)) is None:
        for descriptor, _ in asked.poll():
            request = os.read(descriptor, 512)
            if descriptor == woken:
                continue
            if STOP in request:
                os.kill(child, signal.SIGTERM)
            if not request or KILL in request:  # a supervisor that has died asks for the same
                os.kill(child, signal.SIGKILL)
                if not contained:
                    kill_descendants(child)
                asked.unregister(channel)
    if not contained:
        end_the_rest(child)
    return code


def reaped(child: int) -> int | None:
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


def end_the_rest(session: int) -> None:
    """Without a PID namespace: orphans come to the keeper, so that it has children as long as anything is left."""
    while True:
        kill_descendants(session)
        try:
            if sys.platform == "linux":
                os.waitpid(-1, 0)
            else:
                return  # orphans go elsewhere, and the session was all that could be found
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
                continue  # it ended meanwhile
            children.setdefault(parent, []).append(int(name))
    left = list(children.get(os.getpid(), ()))
    while left:
        pid = left.pop()
        left += children.get(pid, ())
        send_kill(pid)


def send_kill(pid: int) -> None:
    try:  # noqa: SIM105 -- contextlib costs 3 ms here
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended


# The child: from a copy of the keeper to the container's program.


def become(order: "Order", libc: CDLL) -> "NoReturn":
    os.setsid()  # else a program that signals its own group ends the keeper
    if order["memory_group"]:
        write_text(order["memory_group"], "0")
    if order["namespaces"]:
        make_root(order["steps"], libc)
        name = order["host_name"].encode()
        if name and libc.sethostname(name, len(name)):
            raise Refused(f"the host name cannot be {order['host_name']}: {os.strerror(get_errno())}")
    try:
        os.chdir(order["directory"])
    except OSError as error:
        raise Refused(f'chdir to "{order["directory"]}" failed: {spoken(error)}') from None
    program = found(order["arguments"][0], order["environment"])
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and exec would hand that on
        signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(program, order["arguments"], order["environment"])  # noqa: S606 -- a container's command
    except OSError as error:
        raise Refused(f"exec {program}: {spoken(error)}") from None


def found(name: str, environment: dict[str, str]) -> str:
    """The program's path, by the container's own PATH. Raises Refused with the sentence of a container engine."""
    if "/" in name:
        try:
            is_folder = os.stat(name).st_mode & 0o170000 == 0o040000
        except OSError as error:
            raise Refused(f'exec: "{name}": stat {name}: {spoken(error)}') from None
        if is_folder:
            raise Refused(f'exec: "{name}": is a directory')
        if not os.access(name, os.X_OK):
            raise Refused(f'exec: "{name}": permission denied')
        return name
    for folder in environment.get("PATH", "").split(":"):
        path = f"{folder or '.'}/{name}"
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise Refused(f'exec: "{name}": executable file not found in $PATH')


def spoken(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


# The root: the steps of layout.py, taken on a tmpfs that then becomes the only thing in sight.


def make_root(steps: list[tuple[str, ...]], libc: CDLL) -> None:
    base = next(path for path in ("/tmp", "/var", "/usr") if os.path.isdir(path))  # noqa: S108 -- covered, not used
    mount(libc, "tmpfs", base, "tmpfs", NO_SUID | NO_DEVICES, "mode=0755")
    for name in (MACHINE, ROOT):
        os.mkdir(base + name)
    pivot(libc, base, base + MACHINE)
    os.chdir("/")
    mount(libc, "tmpfs", ROOT, "tmpfs", NO_SUID | NO_DEVICES, "mode=0755")
    for number, (kind, target, *more) in enumerate(steps):
        try:
            take(libc, kind, ROOT + target, more, f"/text-{number}")
        except OSError as error:
            raise Refused(f"{target} cannot be made in the container ({kind}): {spoken(error)}") from None
    os.chdir(ROOT)
    pivot(libc, ".", ".")  # the old root now lies above the new one, and "." is still the old
    if libc.umount2(b".", DETACH):
        raise Refused(f"the machine's root cannot be left: {os.strerror(get_errno())}")
    os.chdir("/")


def take(libc: CDLL, kind: str, target: str, more: list[str], text_file: str) -> None:
    if kind == "folder":
        os.makedirs(target, exist_ok=True)
    elif kind == "file":
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    elif kind == "link":
        os.symlink(more[0], target)
    elif kind == "text":
        descriptor = os.open(text_file, os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(descriptor, more[0].encode())
        os.close(descriptor)
        mount(libc, text_file, target, "", BIND, "")
    elif kind == "tmpfs":
        mount(libc, "tmpfs", target, "tmpfs", NO_SUID | NO_DEVICES, more[0])
    elif kind == "proc":
        try:
            mount(libc, "proc", target, "proc", NO_SUID | NO_DEVICES | NO_EXECUTION, "")
        except OSError:  # where parts of it are hidden from us, as in most containers
            mount(libc, MACHINE + "/proc", target, "", BIND | RECURSIVE, "")
    elif kind == "layer":
        source, upper, work = (MACHINE + path for path in more)
        options = f"lowerdir={escaped(source)},upperdir={escaped(upper)},workdir={escaped(work)},userxattr"
        try:
            mount(libc, "overlay", target, "overlay", NO_SUID | NO_DEVICES, options)
            os.chmod(f"{work}/work", 0o700)  # which the kernel makes so that an ordinary user cannot remove it
        except OSError:  # before Linux 5.11, or on a file system that cannot be the upper one
            bind(libc, "bind read-only", source, target)
    else:
        bind(libc, kind, MACHINE + more[0], target)


def escaped(path: str) -> str:
    """For the options of an overlay, where commas and colons have a meaning."""
    return "".join(f"\\{sign}" if sign in ",:\\" else sign for sign in path)


def bind(libc: CDLL, kind: str, source: str, target: str) -> None:
    try:
        mount(libc, source, target, "", BIND | RECURSIVE, "")
    except OSError:
        if kind != "show":  # the machine's own, which a container can do without
            raise
    if kind == "bind read-only":
        # What the mount already forbids may not be allowed again in a user namespace, not even by omission.
        kept = os.statvfs(target).f_flag & (NO_SUID | NO_DEVICES | NO_EXECUTION)
        mount(libc, "none", target, "", REMOUNT | BIND | READ_ONLY | kept, "")


def mount(libc: CDLL, source: str, target: str, kind: str, flags: int, options: str) -> None:
    encoded = [os.fsencode(text) for text in (source, target, kind, options)]
    if libc.mount(encoded[0], encoded[1], encoded[2] or None, flags, encoded[3] or None):
        number = get_errno()
        raise OSError(number, os.strerror(number), target)


def pivot(libc: CDLL, root: str, old: str) -> None:
    number = PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise Refused(f"the number of pivot_root is not known for {os.uname().machine}")
    if libc.syscall(number, os.fsencode(root), os.fsencode(old)):
        raise Refused(f"the kernel refuses another root (pivot_root: {os.strerror(get_errno())})")


if __name__ == "__main__":
    main()
