"""Containers as processes, in namespaces and plainly. What only an ordinary user meets is in test_sandbox_user.py."""

import asyncio
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.local.cri import DEFAULT_PATH, Mount, StartError
from paddle_operator.local.sandbox.sandbox import (
    LocalSandbox,
    NamespaceSandbox,
    PlainSandbox,
    machine_sandbox,
)
from tests.local.containers import SOMEBODY, SOURCES, a_command, processes_with, ran, shell, until

# Sleeps in a session of its own whose parent has ended, so that nothing but a container's end can find it.
DAEMON = """
import os, sys, time
if os.fork():
    os.wait()
else:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execvp("sleep", ["sleep", sys.argv[1]])
"""

OF_PROGRAMS = 0x7FFFFFFF  # signals 1 to 31: 32 and 33 are the C library's own, which nobody can set


@pytest.fixture
def contained() -> NamespaceSandbox:
    return NamespaceSandbox()


@pytest.fixture(params=["in namespaces", "plainly"])
def sandbox(request: pytest.FixtureRequest) -> LocalSandbox:
    return NamespaceSandbox() if request.param == "in namespaces" else PlainSandbox("a test says so")


@pytest.fixture
def mark() -> str:
    """An argument of `sleep` that no other process has."""
    return f"{900_000 + uuid.uuid4().int % 90_000}.{os.getpid()}"


# Both


async def test_a_program_gets_its_arguments_its_variables_and_nothing_else(sandbox: LocalSandbox) -> None:
    result = await ran(sandbox, "env", environment={"PADDLE": "a\nb", "PATH": "/usr/bin:/bin"})
    assert result.code == 0
    assert sorted(result.output.splitlines()) == ["PADDLE=a", "PATH=/usr/bin:/bin", "b"]


async def test_a_program_has_no_other_descriptors_no_blocked_signals_and_a_session_of_its_own(
    sandbox: LocalSandbox,
) -> None:
    script = "ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status; test $(ps -o sid= -p $$) = $$ && echo leads"
    result = await shell(sandbox, script)
    *descriptors, blocked, ignored, leads = result.output.split("\n")[:-1]
    assert descriptors == ["0", "1", "2", "3"]  # the last is of ls itself
    assert [int(line.split()[1], 16) & OF_PROGRAMS for line in (blocked, ignored)] == [0, 0]
    assert leads == "leads"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$; sleep 9", 139)])
async def test_exit_codes_are_as_a_container_engine_tells_them(sandbox: LocalSandbox, script: str, code: int) -> None:
    # The first process of a PID namespace is safe from its own signals, so another one takes the hit.
    assert (await shell(sandbox, f"sh -c '{script}'; exit $?")).code == code


async def test_an_exit_by_a_signal_from_outside_is_128_and_its_number(sandbox: LocalSandbox) -> None:
    process = await sandbox.start(a_command("sleep", "600"), sys.stderr.fileno())
    process.kill()
    assert await process.wait() == 137
    process.terminate()  # to say so again harms nobody
    process.kill()
    assert await process.wait() == 137


async def test_terminate_reaches_the_first_process_only(sandbox: LocalSandbox, tmp_path: Path) -> None:
    other = "trap 'echo wrong' TERM; echo ready; sleep 600"
    script = f"trap 'echo asked; exit 7' TERM; sh -c \"{other}\" & while :; do wait; done"
    with (tmp_path / "output").open("wb") as output:
        process = await sandbox.start(a_command("sh", "-c", script), output.fileno())
        await until(lambda: "ready" in (tmp_path / "output").read_text())
        process.terminate()
        assert await process.wait() == 7
    assert (tmp_path / "output").read_text() == "ready\nasked\n"


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("no-such-program", 'exec: "no-such-program": executable file not found in $PATH'),
        ("/no/such", 'exec: "/no/such": stat /no/such: no such file or directory'),
        ("/etc", 'exec: "/etc": is a directory'),
        ("/etc/passwd", 'exec: "/etc/passwd": permission denied'),
    ],
)
async def test_a_program_that_cannot_be_started_is_refused_in_an_engines_words(
    sandbox: LocalSandbox, program: str, sentence: str
) -> None:
    with pytest.raises(StartError) as refused:
        await ran(sandbox, program)
    assert str(refused.value) == sentence


async def test_a_program_is_looked_for_in_the_containers_own_path(sandbox: LocalSandbox, tmp_path: Path) -> None:
    program = Path("/usr/bin/env").resolve()
    (tmp_path / "mine").symlink_to(program)
    folder = tmp_path if isinstance(sandbox, PlainSandbox) else Path("/programs")
    mounts = (Mount(tmp_path, "/programs"),)
    assert (await ran(sandbox, "mine", environment={"PATH": f"/nowhere:{folder}"}, mounts=mounts)).code == 0


async def test_a_program_without_a_known_format_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(StartError, match=r"exec /.*/text: exec format error"):
        await ran(sandbox, "/data/text", mounts=(Mount(tmp_path, "/data"),))


async def test_a_container_without_a_command_is_refused(sandbox: LocalSandbox) -> None:
    with pytest.raises(StartError, match="no command specified"):
        await ran(sandbox)


async def test_nothing_is_left_when_the_first_process_ends(sandbox: LocalSandbox, mark: str) -> None:
    result = await ran(sandbox, sys.executable, "-c", DAEMON, mark)
    assert result.code == 0
    assert processes_with(mark) == []


async def test_nothing_is_left_after_kill(sandbox: LocalSandbox, mark: str) -> None:
    script = f"{sys.executable} -c '{DAEMON}' {mark}; exec sleep {mark}"
    process = await sandbox.start(a_command("sh", "-c", script), sys.stderr.fileno())
    await until(lambda: len([pid for pid in processes_with(mark) if is_sleep(pid)]) == 2)
    process.kill()
    await process.wait()
    assert processes_with(mark) == []


@pytest.mark.parametrize("kind", ["NamespaceSandbox()", "PlainSandbox('')"])
async def test_nothing_is_left_when_the_supervisor_is_killed(kind: str, mark: str) -> None:
    supervisor = f"""
import asyncio, sys
from paddle_operator.local.cri import Command
from paddle_operator.local.sandbox.sandbox import *
async def main():
    sandbox = {kind}
    script = "{sys.executable} -c '$DAEMON' {mark}; exec sleep {mark}".replace("$DAEMON", {DAEMON!r})
    for _ in range(2):
        await sandbox.start(Command(("sh", "-c", script), {{}}), 2)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", supervisor, env={"PYTHONPATH": str(SOURCES)})
    try:
        await until(lambda: len([pid for pid in processes_with(mark) if is_sleep(pid)]) == 4)
    finally:
        process.kill()
        await process.wait()
    await until(lambda: processes_with(mark) == [])


async def test_a_killed_keeper_takes_its_container_along(contained: NamespaceSandbox, mark: str) -> None:
    script = f"for _ in $(seq 300); do sleep {mark} & done; wait"  # many, so that their end takes a moment
    process = await contained.start(a_command("sh", "-c", script), sys.stderr.fileno())
    await until(lambda: len(processes_with(mark)) > 300)
    os.kill(keeper_of(process.pid), signal.SIGKILL)
    assert await process.wait() == 137
    assert processes_with(mark) == []


async def test_a_keeper_has_no_variables_that_others_could_read(sandbox: LocalSandbox, mark: str) -> None:
    process = await sandbox.start(a_command("sleep", mark, environment={"TOKEN": "x"}), sys.stderr.fileno())
    keeper = Path(f"/proc/{keeper_of(process.pid)}")
    assert (keeper / "environ").read_bytes() == b""
    assert b"TOKEN" not in (keeper / "cmdline").read_bytes()
    process.kill()
    await process.wait()


async def test_a_start_that_is_called_off_leaves_nothing(sandbox: LocalSandbox, mark: str) -> None:
    starting = asyncio.create_task(sandbox.start(a_command("sleep", mark), sys.stderr.fileno()))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: processes_with(mark) == [])


async def test_a_start_that_is_called_off_in_mid_sentence_leaves_no_keeper(sandbox: LocalSandbox) -> None:
    endless = {"X": "x" * (64 << 20)}  # more than a keeper reads in the moment before it is called off
    before = children()
    starting = asyncio.create_task(sandbox.start(a_command("true", environment=endless), sys.stderr.fileno()))
    await until(lambda: bool(children() - before))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not children() - before


async def test_many_variables_of_many_bytes_arrive(sandbox: LocalSandbox) -> None:
    environment = {f"ENDPOINTS_{number}": "x" * 120_000 for number in range(5)}
    assert (await shell(sandbox, "env | wc -c", environment=environment)).output.strip() > "600000"


async def test_two_containers_at_once_end_each_with_its_own_code(sandbox: LocalSandbox) -> None:
    results = await asyncio.gather(*(shell(sandbox, f"exit {number}") for number in range(8)))
    assert [result.code for result in results] == list(range(8))


@pytest.mark.parametrize("free", [1, 3])  # no socket, and a socket but no process
async def test_a_machine_that_has_no_more_descriptors_is_told_and_nothing_leaks(
    sandbox: LocalSandbox, free: int
) -> None:
    await shell(sandbox, "true")  # what stays from the first time is there now
    gc.collect()  # what other tests have left open is closed now, and nothing while we count
    gc.disable()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest, taken = max(map(int, os.listdir("/proc/self/fd"))), [os.dup(0)]
    while taken[-1] < highest:
        taken.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + free, limits[1]))
    try:
        with pytest.raises(StartError, match="refuses another process: Too many open files"):
            await sandbox.start(a_command("true"), sys.stderr.fileno())
        next_descriptor = os.dup(0)
        assert next_descriptor == taken[-1] + 1
        os.close(next_descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.enable()
        for descriptor in taken:
            os.close(descriptor)


async def test_a_scratch_folder_that_cannot_be_made_is_told(sandbox: LocalSandbox, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="folders cannot be made"):
        await ran(sandbox, "true", scratch=tmp_path / "file")


# In namespaces


async def test_a_container_sees_itself_as_root_and_first_process_under_its_host_name(
    contained: NamespaceSandbox,
) -> None:
    result = await shell(contained, "id -u; echo $$; hostname; ls -d /proc/[0-9]* | wc -l", host_name="mnist-worker-0")
    uid, pid, name, processes = result.output.split()
    assert (uid, pid, name) == ("0", "1", "mnist-worker-0")
    assert int(processes) <= 5


async def test_a_container_can_have_another_user(contained: NamespaceSandbox, tmp_path: Path) -> None:
    result = await shell(contained, "id -u; touch /data/mine", user=1000, mounts=(Mount(tmp_path, "/data"),))
    assert result.output == "1000\n"
    assert (tmp_path / "mine").stat().st_uid == os.geteuid()


async def test_volumes_stand_at_their_paths_and_read_only_ones_refuse(
    contained: NamespaceSandbox, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/key").write_text("secret")
    mounts = (
        Mount(tmp_path / "one", "/nas/wide_and_deep"),
        Mount(tmp_path / "two", "/etc/paddle/conf", read_only=True),
        Mount(tmp_path / "two/key", "/usr/lib/paddle.key", read_only=True),
    )
    script = "echo x > /nas/wide_and_deep/made; cat /etc/paddle/conf/key /usr/lib/paddle.key; ls /etc/passwd"
    result = await shell(contained, f"{script}; > /etc/paddle/conf/no", mounts=mounts)
    assert (tmp_path / "one/made").read_text() == "x\n"
    assert result.output.startswith("secretsecret/etc/passwd\n")
    assert "Read-only file system" in result.output
    assert result.code != 0
    assert not Path("/nas").exists()
    assert not Path("/etc/paddle").exists()


def test_a_read_only_mount_of_a_file_system_with_locked_flags_works(tmp_path: Path) -> None:
    # Flags of the namespace above are locked in ours: a remount that forgets them gets EPERM.
    preparation = f"mount -t tmpfs -o nosuid,nodev,noexec,noatime none {tmp_path}"
    script = f"""
import asyncio, json
from pathlib import Path
from paddle_operator.local.cri import Mount
from paddle_operator.local.sandbox.sandbox import NamespaceSandbox
from tests.local.containers import shell
mount = Mount(Path({str(tmp_path)!r}), "/data", read_only=True)
print(json.dumps(asyncio.run(shell(NamespaceSandbox(), "echo fine; touch /data/no", mounts=(mount,))).output))
"""
    output = told_in_namespaces(preparation, script)
    assert output.startswith("fine\n")
    assert "Read-only file system" in output


async def test_a_container_may_read_what_its_caller_may(contained: NamespaceSandbox, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("text")
    if os.geteuid() == 0:  # who may read what belongs to others
        os.chown(tmp_path / "theirs", SOMEBODY, SOMEBODY)
    (tmp_path / "theirs").chmod(0o600)
    assert (await shell(contained, "cat /data/theirs", mounts=(Mount(tmp_path, "/data"),))).output == "text"


def needed(folder: str) -> list[str]:
    return [path for path in (sys.prefix, sys.base_prefix, str(SOURCES)) if path.startswith(f"{folder}/")]


async def test_tmp_and_shared_memory_are_the_containers_own(contained: NamespaceSandbox, tmp_path: Path) -> None:
    name = f"paddle-{uuid.uuid4()}"
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        result = await shell(contained, f"touch {folder}/{name}; ls {folder}", scratch=tmp_path / "scratch")
        # Where the interpreter or its environment is below /tmp, as in a clone there, the way to it is shown.
        assert set(result.output.split()) - {Path(shown).parts[2] for shown in needed(folder)} == {name}
        assert not Path(folder, name).exists()
    assert (tmp_path / "scratch/tmp-0" / name).exists()  # so that a large file is no memory


async def test_a_container_has_its_own_hosts_file_and_the_machines_is_as_it_was(contained: NamespaceSandbox) -> None:
    before = Path("/etc/hosts").read_text()
    result = await shell(contained, "getent hosts mnist-ps-0; echo >> /etc/hosts", hosts="127.33.1.7 mnist-ps-0\n")
    assert result.output.split() == ["127.33.1.7", "mnist-ps-0"]
    assert Path("/etc/hosts").read_text() == before


async def test_a_hosts_file_that_is_mounted_can_be_changed_while_the_container_runs(
    contained: NamespaceSandbox, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.33.1.7 early\n")
    script = "until grep -q late /etc/hosts; do sleep 0.01; done; getent hosts late"
    with (tmp_path / "output").open("wb") as output:
        command = a_command("sh", "-c", script, mounts=(Mount(hosts, "/etc/hosts"),))
        process = await contained.start(command, output.fileno())
        with hosts.open("r+") as file:
            file.write("127.33.1.8 late\n")
        assert await process.wait() == 0
    assert (tmp_path / "output").read_text().split() == ["127.33.1.8", "late"]


async def test_what_is_shown_is_in_sight_below_tmp_and_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    sandbox = NamespaceSandbox([tmp_path])
    result = await shell(sandbox, f"ls {tmp_path}; touch {tmp_path}/no")
    assert result.output.startswith("environment\n")
    assert "Read-only file system" in result.output


async def test_what_a_container_writes_where_it_is_shown_something_is_its_own(tmp_path: Path) -> None:
    """As `pip install` in a container's command does: it may, and nobody else is the wiser."""
    shown = tmp_path / "cache, of: all"
    shown.mkdir()
    (shown / "old").write_text("old")
    sandbox = NamespaceSandbox([shown])
    script = f"cd '{shown}' && echo new > new && echo changed > old && cat new old"
    # In memory an overlay can always keep what is written; where the machine's disk cannot, the folder is read-only.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        result = await shell(sandbox, script, scratch=Path(scratch))
    assert (result.code, result.output) == (0, "new\nchanged\n")
    assert [path.name for path in shown.iterdir()] == ["old"]
    assert (shown / "old").read_text() == "old"
    assert (await shell(sandbox, f"cat '{shown}/new'", scratch=tmp_path / "another")).code == 1


async def test_a_working_directory_is_made_where_it_is_missing(contained: NamespaceSandbox) -> None:
    result = await shell(contained, "pwd; touch here", working_directory="/made/for/this")
    assert (result.code, result.output) == (0, "/made/for/this\n")
    assert not Path("/made").exists()


async def test_a_program_that_signals_its_own_group_does_not_end_its_keeper(contained: NamespaceSandbox) -> None:
    result = await shell(contained, "trap 'echo heard; exit 5' USR1; kill -USR1 0; sleep 60")
    assert (result.code, result.output) == (5, "heard\n")


async def test_the_machines_mounts_are_as_they_were(contained: NamespaceSandbox, tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    await shell(contained, "true", mounts=(Mount(tmp_path, "/etc/paddle"),), working_directory="/new")
    assert Path("/proc/self/mountinfo").read_text() == before


# Plainly


async def test_plainly_the_working_directory_and_the_program_are_found_in_their_volumes(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/run").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "inner/run").chmod(0o755)
    sandbox = PlainSandbox("a test says so")
    mounts = (Mount(tmp_path, "/app"), Mount(tmp_path / "inner", "/app/elsewhere"))
    result = await ran(sandbox, "/app/elsewhere/run", mounts=mounts, working_directory="/app/inner")
    assert result.output == f"{tmp_path}/inner\n"


async def test_plainly_temporary_files_go_to_the_scratch_folder(tmp_path: Path) -> None:
    result = await shell(PlainSandbox("a test says so"), "mktemp", scratch=tmp_path)
    assert result.output.startswith(f"{tmp_path}/")


def test_a_plain_sandbox_says_why_and_what_is_missing() -> None:
    sentence, *_ = PlainSandbox("the kernel refuses new namespaces").notes
    assert "because the kernel refuses new namespaces" in sentence
    for missing in ("volumes", "/tmp", "/etc/hosts", "host name"):
        assert missing in sentence


# The choice


async def test_the_probe_takes_namespaces_where_they_work() -> None:
    assert isinstance(await machine_sandbox(), NamespaceSandbox)


def test_the_probe_takes_plain_processes_where_a_kernel_refuses_and_tells_its_words() -> None:
    # Within a user namespace of ours the limit of those below it is ours to set.
    name, notes = probed_after("echo 0 > /proc/sys/user/max_user_namespaces")
    assert name == "PlainSandbox"
    assert "unshare: No space left on device" in notes[0]


def test_the_probe_takes_namespaces_with_the_machines_proc_where_parts_of_that_are_hidden() -> None:
    # As container engines do it; the kernel then refuses another /proc, in which they would be in sight.
    name, notes = probed_after("mount -t tmpfs none /proc/sys")
    assert name == "NamespaceSandbox"
    assert any("see the machine's processes in /proc" in note for note in notes)


def test_whoever_is_root_only_in_a_namespace_gets_namespaces_too() -> None:
    name, notes = probed_after("true")
    assert name == "NamespaceSandbox"
    assert not any("/proc" in note for note in notes)


def probed_after(preparation: str) -> tuple[str, list[str]]:
    script = """
import asyncio, json
from paddle_operator.local.sandbox.sandbox import machine_sandbox
sandbox = asyncio.run(machine_sandbox())
print(json.dumps([type(sandbox).__name__, sandbox.notes]))
"""
    name, notes = told_in_namespaces(preparation, script)
    return name, notes


def told_in_namespaces(preparation: str, script: str) -> Any:
    """What a Python program prints as JSON in namespaces of ours, prepared by shell; nothing of the machine changes."""
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", f'{preparation}; exec "$@"', "-"]
    done = subprocess.run(
        [*namespaces, sys.executable, "-c", script],
        env={"PYTHONPATH": f"{SOURCES}:{SOURCES.parent}", "PATH": DEFAULT_PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def keeper_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    except OSError:
        return False
