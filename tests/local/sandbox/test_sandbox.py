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
    detect_sandbox,
)
from tests.local.containers import (
    SOURCES,
    UNPRIVILEGED_UID,
    find_processes,
    make_command,
    run_in_sandbox,
    run_shell,
    wait_until,
)

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

USER_SIGNALS_MASK = 0x7FFFFFFF  # signals 1 to 31: 32 and 33 are the C library's own, which nobody can set


@pytest.fixture
def namespaces() -> NamespaceSandbox:
    return NamespaceSandbox()


@pytest.fixture(params=["namespaces", "plain"])
def sandbox(request: pytest.FixtureRequest) -> LocalSandbox:
    return NamespaceSandbox() if request.param == "namespaces" else PlainSandbox("a test disables namespaces")


@pytest.fixture
def duration() -> str:
    """An argument of `sleep` that no other process has."""
    return f"{900_000 + uuid.uuid4().int % 90_000}.{os.getpid()}"


# Both sandboxes


async def test_environment_is_exactly_what_was_given(sandbox: LocalSandbox) -> None:
    result = await run_in_sandbox(sandbox, "env", environment={"PADDLE": "a\nb", "PATH": "/usr/bin:/bin"})
    assert result.code == 0
    assert sorted(result.output.splitlines()) == ["PADDLE=a", "PATH=/usr/bin:/bin", "b"]


async def test_no_descriptors_or_signal_masks_are_inherited(
    sandbox: LocalSandbox,
) -> None:
    script = "ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status; test $(ps -o sid= -p $$) = $$ && echo leads"
    result = await run_shell(sandbox, script)
    *descriptors, blocked, ignored, leads = result.output.split("\n")[:-1]
    assert descriptors == ["0", "1", "2", "3"]  # the last is of ls itself
    assert [int(line.split()[1], 16) & USER_SIGNALS_MASK for line in (blocked, ignored)] == [0, 0]
    assert leads == "leads"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$; sleep 9", 139)])
async def test_exit_codes_match_a_container_engine(sandbox: LocalSandbox, script: str, code: int) -> None:
    # The first process of a PID namespace is safe from its own signals, so another one takes the hit.
    assert (await run_shell(sandbox, f"sh -c '{script}'; exit $?")).code == code


async def test_kill_gives_exit_code_137(sandbox: LocalSandbox) -> None:
    process = await sandbox.start(make_command("sleep", "600"), sys.stderr.fileno())
    process.kill()
    assert await process.wait() == 137
    process.terminate()  # repeated requests have no effect
    process.kill()
    assert await process.wait() == 137


async def test_terminate_signals_only_the_first_process(sandbox: LocalSandbox, tmp_path: Path) -> None:
    other = "trap 'echo wrong' TERM; echo ready; sleep 600"
    script = f"trap 'echo asked; exit 7' TERM; sh -c \"{other}\" & while :; do wait; done"
    with (tmp_path / "output").open("wb") as output:
        process = await sandbox.start(make_command("sh", "-c", script), output.fileno())
        await wait_until(lambda: "ready" in (tmp_path / "output").read_text())
        process.terminate()
        assert await process.wait() == 7
    assert (tmp_path / "output").read_text() == "ready\nasked\n"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("no-such-program", 'exec: "no-such-program": executable file not found in $PATH'),
        ("/no/such", 'exec: "/no/such": stat /no/such: no such file or directory'),
        ("/etc", 'exec: "/etc": is a directory'),
        ("/etc/passwd", 'exec: "/etc/passwd": permission denied'),
    ],
)
async def test_start_error_has_the_engines_message(sandbox: LocalSandbox, program: str, message: str) -> None:
    with pytest.raises(StartError) as refused:
        await run_in_sandbox(sandbox, program)
    assert str(refused.value) == message


async def test_program_is_resolved_in_the_containers_path(sandbox: LocalSandbox, tmp_path: Path) -> None:
    program = Path("/usr/bin/env").resolve()
    (tmp_path / "mine").symlink_to(program)
    folder = tmp_path if isinstance(sandbox, PlainSandbox) else Path("/programs")
    mounts = (Mount(tmp_path, "/programs"),)
    assert (await run_in_sandbox(sandbox, "mine", environment={"PATH": f"/nowhere:{folder}"}, mounts=mounts)).code == 0


async def test_unknown_executable_format_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(StartError, match=r"exec /.*/text: exec format error"):
        await run_in_sandbox(sandbox, "/data/text", mounts=(Mount(tmp_path, "/data"),))


async def test_missing_command_is_refused(sandbox: LocalSandbox) -> None:
    with pytest.raises(StartError, match="no command specified"):
        await run_in_sandbox(sandbox)


async def test_no_process_survives_the_first_one(sandbox: LocalSandbox, duration: str) -> None:
    result = await run_in_sandbox(sandbox, sys.executable, "-c", DAEMON, duration)
    assert result.code == 0
    assert find_processes(duration) == []


async def test_no_process_survives_kill(sandbox: LocalSandbox, duration: str) -> None:
    script = f"{sys.executable} -c '{DAEMON}' {duration}; exec sleep {duration}"
    process = await sandbox.start(make_command("sh", "-c", script), sys.stderr.fileno())
    await wait_until(lambda: len([pid for pid in find_processes(duration) if is_sleep(pid)]) == 2)
    process.kill()
    await process.wait()
    assert find_processes(duration) == []


@pytest.mark.parametrize("kind", ["NamespaceSandbox()", "PlainSandbox('')"])
async def test_no_process_survives_the_supervisor(kind: str, duration: str) -> None:
    supervisor = f"""
import asyncio, sys
from paddle_operator.local.cri import Command
from paddle_operator.local.sandbox.sandbox import *
async def main():
    sandbox = {kind}
    script = "{sys.executable} -c '$DAEMON' {duration}; exec sleep {duration}".replace("$DAEMON", {DAEMON!r})
    for _ in range(2):
        await sandbox.start(Command(("sh", "-c", script), {{}}), 2)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", supervisor, env={"PYTHONPATH": str(SOURCES)})
    try:
        await wait_until(lambda: len([pid for pid in find_processes(duration) if is_sleep(pid)]) == 4)
    finally:
        process.kill()
        await process.wait()
    await wait_until(lambda: find_processes(duration) == [])


async def test_killed_shim_takes_its_container_along(namespaces: NamespaceSandbox, duration: str) -> None:
    script = f"for _ in $(seq 300); do sleep {duration} & done; wait"  # many, so that their end takes a moment
    process = await namespaces.start(make_command("sh", "-c", script), sys.stderr.fileno())
    await wait_until(lambda: len(find_processes(duration)) > 300)
    os.kill(parent_pid(process.pid), signal.SIGKILL)
    assert await process.wait() == 137
    assert find_processes(duration) == []


async def test_shim_environment_is_empty(sandbox: LocalSandbox, duration: str) -> None:
    process = await sandbox.start(make_command("sleep", duration, environment={"TOKEN": "x"}), sys.stderr.fileno())
    shim = Path(f"/proc/{parent_pid(process.pid)}")
    assert (shim / "environ").read_bytes() == b""
    assert b"TOKEN" not in (shim / "cmdline").read_bytes()
    process.kill()
    await process.wait()


async def test_cancelled_start_leaves_no_process(sandbox: LocalSandbox, duration: str) -> None:
    starting = asyncio.create_task(sandbox.start(make_command("sleep", duration), sys.stderr.fileno()))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await wait_until(lambda: find_processes(duration) == [])


async def test_cancelled_partial_spec_leaves_no_shim(sandbox: LocalSandbox) -> None:
    endless = {"X": "x" * (64 << 20)}  # more than the shim reads before the start is cancelled
    before = children()
    starting = asyncio.create_task(sandbox.start(make_command("true", environment=endless), sys.stderr.fileno()))
    await wait_until(lambda: bool(children() - before))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not children() - before


async def test_large_environment_arrives_whole(sandbox: LocalSandbox) -> None:
    environment = {f"ENDPOINTS_{number}": "x" * 120_000 for number in range(5)}
    assert (await run_shell(sandbox, "env | wc -c", environment=environment)).output.strip() > "600000"


async def test_concurrent_containers_keep_their_exit_codes(sandbox: LocalSandbox) -> None:
    results = await asyncio.gather(*(run_shell(sandbox, f"exit {number}") for number in range(8)))
    assert [result.code for result in results] == list(range(8))


@pytest.mark.parametrize("free", [1, 3])  # no socket, and a socket but no process
async def test_exhausted_descriptors_fail_without_a_leak(sandbox: LocalSandbox, free: int) -> None:
    await run_shell(sandbox, "true")  # what stays from the first time is there now
    gc.collect()  # what other tests have left open is closed now, and nothing while we count
    gc.disable()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest, taken = max(map(int, os.listdir("/proc/self/fd"))), [os.dup(0)]
    while taken[-1] < highest:
        taken.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + free, limits[1]))
    try:
        with pytest.raises(StartError, match="cannot start another process: Too many open files"):
            await sandbox.start(make_command("true"), sys.stderr.fileno())
        next_descriptor = os.dup(0)
        assert next_descriptor == taken[-1] + 1
        os.close(next_descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.enable()
        for descriptor in taken:
            os.close(descriptor)


async def test_uncreatable_scratch_directory_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="cannot create the container"):
        await run_in_sandbox(sandbox, "true", scratch=tmp_path / "file")


# NamespaceSandbox


async def test_container_is_root_pid_1_with_its_host_name(
    namespaces: NamespaceSandbox,
) -> None:
    result = await run_shell(
        namespaces, "id -u; echo $$; hostname; ls -d /proc/[0-9]* | wc -l", host_name="mnist-worker-0"
    )
    uid, pid, name, processes = result.output.split()
    assert (uid, pid, name) == ("0", "1", "mnist-worker-0")
    assert int(processes) <= 5


async def test_container_runs_as_another_uid(namespaces: NamespaceSandbox, tmp_path: Path) -> None:
    result = await run_shell(namespaces, "id -u; touch /data/mine", user=1000, mounts=(Mount(tmp_path, "/data"),))
    assert result.output == "1000\n"
    assert (tmp_path / "mine").stat().st_uid == os.geteuid()


async def test_volumes_are_mounted_and_read_only_is_enforced(namespaces: NamespaceSandbox, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/key").write_text("secret")
    mounts = (
        Mount(tmp_path / "one", "/nas/wide_and_deep"),
        Mount(tmp_path / "two", "/etc/paddle/conf", read_only=True),
        Mount(tmp_path / "two/key", "/usr/lib/paddle.key", read_only=True),
    )
    script = "echo x > /nas/wide_and_deep/made; cat /etc/paddle/conf/key /usr/lib/paddle.key; ls /etc/passwd"
    result = await run_shell(namespaces, f"{script}; > /etc/paddle/conf/no", mounts=mounts)
    assert (tmp_path / "one/made").read_text() == "x\n"
    assert result.output.startswith("secretsecret/etc/passwd\n")
    assert "Read-only file system" in result.output
    assert result.code != 0
    assert not Path("/nas").exists()
    assert not Path("/etc/paddle").exists()


def test_read_only_mount_with_locked_flags(tmp_path: Path) -> None:
    # Flags of the namespace above are locked in ours: a remount that forgets them gets EPERM.
    preparation = f"mount -t tmpfs -o nosuid,nodev,noexec,noatime none {tmp_path}"
    script = f"""
import asyncio, json
from pathlib import Path
from paddle_operator.local.cri import Mount
from paddle_operator.local.sandbox.sandbox import NamespaceSandbox
from tests.local.containers import run_shell
mount = Mount(Path({str(tmp_path)!r}), "/data", read_only=True)
print(json.dumps(asyncio.run(run_shell(NamespaceSandbox(), "echo fine; touch /data/no", mounts=(mount,))).output))
"""
    output = run_in_namespaces(preparation, script)
    assert output.startswith("fine\n")
    assert "Read-only file system" in output


async def test_container_reads_what_its_caller_can_read(namespaces: NamespaceSandbox, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("text")
    if os.geteuid() == 0:  # who may read what belongs to others
        os.chown(tmp_path / "theirs", UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    (tmp_path / "theirs").chmod(0o600)
    assert (await run_shell(namespaces, "cat /data/theirs", mounts=(Mount(tmp_path, "/data"),))).output == "text"


def visible_paths(folder: str) -> list[str]:
    return [path for path in (sys.prefix, sys.base_prefix, str(SOURCES)) if path.startswith(f"{folder}/")]


async def test_tmp_and_shm_are_private(namespaces: NamespaceSandbox, tmp_path: Path) -> None:
    name = f"paddle-{uuid.uuid4()}"
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        result = await run_shell(namespaces, f"touch {folder}/{name}; ls {folder}", scratch=tmp_path / "scratch")
        # Where the interpreter or its environment is below /tmp, as in a clone there, the way to it is shown.
        assert set(result.output.split()) - {Path(shown).parts[2] for shown in visible_paths(folder)} == {name}
        assert not Path(folder, name).exists()
    assert (tmp_path / "scratch/tmp-0" / name).exists()  # so that a large file is no memory


async def test_hosts_file_is_private(namespaces: NamespaceSandbox) -> None:
    before = Path("/etc/hosts").read_text()
    result = await run_shell(namespaces, "getent hosts mnist-ps-0; echo >> /etc/hosts", hosts="127.33.1.7 mnist-ps-0\n")
    assert result.output.split() == ["127.33.1.7", "mnist-ps-0"]
    assert Path("/etc/hosts").read_text() == before


async def test_mounted_hosts_file_can_change_at_run_time(namespaces: NamespaceSandbox, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.33.1.7 early\n")
    script = "until grep -q late /etc/hosts; do sleep 0.01; done; getent hosts late"
    with (tmp_path / "output").open("wb") as output:
        command = make_command("sh", "-c", script, mounts=(Mount(hosts, "/etc/hosts"),))
        process = await namespaces.start(command, output.fileno())
        with hosts.open("r+") as file:
            file.write("127.33.1.8 late\n")
        assert await process.wait() == 0
    assert (tmp_path / "output").read_text().split() == ["127.33.1.8", "late"]


async def test_read_only_path_below_tmp_is_visible(tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    sandbox = NamespaceSandbox([tmp_path])
    result = await run_shell(sandbox, f"ls {tmp_path}; touch {tmp_path}/no")
    assert result.output.startswith("environment\n")
    assert "Read-only file system" in result.output


async def test_writes_to_read_only_paths_stay_private(tmp_path: Path) -> None:
    """As `pip install` in a container's command does: it may, and nobody else is the wiser."""
    shown = tmp_path / "cache, of: all"
    shown.mkdir()
    (shown / "old").write_text("old")
    sandbox = NamespaceSandbox([shown])
    script = f"cd '{shown}' && echo new > new && echo changed > old && cat new old"
    # In memory an overlay can always keep what is written; where the machine's disk cannot, the folder is read-only.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        result = await run_shell(sandbox, script, scratch=Path(scratch))
    assert (result.code, result.output) == (0, "new\nchanged\n")
    assert [path.name for path in shown.iterdir()] == ["old"]
    assert (shown / "old").read_text() == "old"
    assert (await run_shell(sandbox, f"cat '{shown}/new'", scratch=tmp_path / "another")).code == 1


async def test_missing_working_directory_is_created(namespaces: NamespaceSandbox) -> None:
    result = await run_shell(namespaces, "pwd; touch here", working_directory="/made/for/this")
    assert (result.code, result.output) == (0, "/made/for/this\n")
    assert not Path("/made").exists()


async def test_signal_to_own_group_does_not_reach_the_shim(namespaces: NamespaceSandbox) -> None:
    result = await run_shell(namespaces, "trap 'echo heard; exit 5' USR1; kill -USR1 0; sleep 60")
    assert (result.code, result.output) == (5, "heard\n")


async def test_host_mounts_are_unchanged(namespaces: NamespaceSandbox, tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    await run_shell(namespaces, "true", mounts=(Mount(tmp_path, "/etc/paddle"),), working_directory="/new")
    assert Path("/proc/self/mountinfo").read_text() == before


# PlainSandbox


async def test_plain_sandbox_maps_volume_paths(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/run").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "inner/run").chmod(0o755)
    sandbox = PlainSandbox("a test disables namespaces")
    mounts = (Mount(tmp_path, "/app"), Mount(tmp_path / "inner", "/app/elsewhere"))
    result = await run_in_sandbox(sandbox, "/app/elsewhere/run", mounts=mounts, working_directory="/app/inner")
    assert result.output == f"{tmp_path}/inner\n"


async def test_plain_sandbox_uses_scratch_for_tmp(tmp_path: Path) -> None:
    result = await run_shell(PlainSandbox("a test disables namespaces"), "mktemp", scratch=tmp_path)
    assert result.output.startswith(f"{tmp_path}/")


def test_plain_sandbox_lists_its_limitations() -> None:
    message, *_ = PlainSandbox("the kernel refuses new namespaces").limitations
    assert "because the kernel refuses new namespaces" in message
    for missing in ("volumes", "/tmp", "/etc/hosts", "host name"):
        assert missing in message


# detect_sandbox


async def test_probe_selects_namespaces() -> None:
    assert isinstance(await detect_sandbox(), NamespaceSandbox)


def test_probe_falls_back_to_plain_processes() -> None:
    # Within a user namespace of ours the limit of those below it is ours to set.
    name, limitations = probe_after("echo 0 > /proc/sys/user/max_user_namespaces")
    assert name == "PlainSandbox"
    assert "unshare: No space left on device" in limitations[0]


def test_probe_accepts_a_masked_proc() -> None:
    # As container engines do it; the kernel then refuses another /proc, in which they would be in sight.
    name, limitations = probe_after("mount -t tmpfs none /proc/sys")
    assert name == "NamespaceSandbox"
    assert any("see the host's processes in /proc" in note for note in limitations)


def test_nested_root_gets_namespaces() -> None:
    name, limitations = probe_after("true")
    assert name == "NamespaceSandbox"
    assert not any("/proc" in note for note in limitations)


def probe_after(preparation: str) -> tuple[str, list[str]]:
    script = """
import asyncio, json
from paddle_operator.local.sandbox.sandbox import detect_sandbox
sandbox = asyncio.run(detect_sandbox())
print(json.dumps([type(sandbox).__name__, sandbox.limitations]))
"""
    name, limitations = run_in_namespaces(preparation, script)
    return name, limitations


def run_in_namespaces(preparation: str, script: str) -> Any:
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


def parent_pid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    except OSError:
        return False
