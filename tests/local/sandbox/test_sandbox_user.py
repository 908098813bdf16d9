"""Containers of an ordinary user. Where root runs the tests, a user without an account plays the part."""

from pathlib import Path
from typing import Any

import pytest

from tests.local.containers import run_as_user, user_folder

RUN = """
import asyncio, json, os, shutil, tempfile
from pathlib import Path
from paddle_operator.local.cri import Command, Mount
from paddle_operator.local.sandbox.sandbox import DEFAULT_PATH, detect_sandbox

async def main():
    folder = Path.cwd()
    (folder / "shown").mkdir()
    sandbox = await detect_sandbox([folder / "shown"])
    (folder / "volume").mkdir()
    (folder / "volume/key").write_text("secret")
    mounts = (
        Mount(folder / "volume", "/nas/data"),
        Mount(folder / "volume/key", "/etc/paddle/key", read_only=True),
        Mount(Path("/dev/shm"), "/locked", read_only=True),
    )
    command = Command(
        ("sh", "-c", SCRIPT), {"PATH": DEFAULT_PATH, "HOME": "/root"}, "/new/place", "mnist-worker-0",
        "127.33.1.7 mnist-ps-0\\n", mounts, user=USER, memory_bytes=64 << 20, scratch=folder / "scratch",
    )
    with tempfile.TemporaryFile() as output:
        process = await sandbox.start(command, output.fileno())
        code = await process.wait()
        output.seek(0)
        text = output.read().decode()
    shutil.rmtree(folder / "scratch")  # with whatever the kernel has left there
    print(json.dumps([type(sandbox).__name__, code, text, os.getuid(), (folder / "volume/made").stat().st_uid]))

asyncio.run(main())
"""


def run_unprivileged(script: str, folder: Path, user: int = 0) -> Any:
    return run_as_user(RUN.replace("SCRIPT", repr(script)).replace("USER", str(user)), folder)


@pytest.mark.parametrize("user", [0, 1000])
def test_unprivileged_container_has_mounts_names_and_uid(user: int) -> None:
    script = (
        "id -u; hostname; pwd; getent hosts mnist-ps-0; cat /etc/paddle/key; touch /nas/data/made /tmp/x /dev/shm/x"
    )
    with user_folder() as folder:
        name, code, text, caller, owner = run_unprivileged(script, folder, user)
    assert (name, code) == ("NamespaceSandbox", 0)
    uid, host_name, directory, address, _, key = text.split()
    assert (uid, host_name, directory, address, key) == (
        str(user), "mnist-worker-0", "/new/place", "127.33.1.7", "secret"
    )  # fmt: skip
    assert owner == caller != 0


def test_unprivileged_container_has_a_writable_home() -> None:
    with user_folder() as folder:
        _, code, text, *_ = run_unprivileged("touch /nas/data/made; mkdir -p $HOME/.cache/paddle && echo made", folder)
    assert (code, text) == (0, "made\n")


def test_unprivileged_writes_leave_shared_paths_unchanged() -> None:
    with user_folder() as folder:
        _, code, text, *_ = run_unprivileged(
            f"touch /nas/data/made; cd {folder}/shown && echo x > new && cat new", folder
        )
        assert (code, text) == (0, "x\n") or "Read-only file system" in text
        assert not list((folder / "shown").iterdir())


def test_unprivileged_read_only_mounts_refuse_writes() -> None:
    with user_folder() as folder:
        _, code, text, *_ = run_unprivileged("touch /nas/data/made; touch /etc/paddle/key; touch /locked/x", folder)
    assert code == 1
    assert text.count("Read-only file system") == 2
