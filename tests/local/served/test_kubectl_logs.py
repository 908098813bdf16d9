"""kubectl logs of running and finished containers."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddle_operator.local.apiserver.http_server import ApiServer
from paddle_operator.local.apiserver.scheme import builtin
from paddle_operator.local.container_logs import LogFiles
from testbed.assets import Binaries
from tests.local.served.conftest import TOKEN
from tests.local.served.objects import make_pod
from tests.local.served.servers import MERGE, KubectlServer, Manifest

WITHIN_SECONDS = 100.0
POD = make_pod("pod", spec={"nodeName": "local-1"})


@pytest.fixture
def log_files(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path / "logs")


@pytest.fixture
async def served(tmp_path: Path, log_files: LogFiles, control_plane_binaries: Binaries) -> AsyncIterator[KubectlServer]:
    home = tmp_path / "home"
    home.mkdir()
    async with ApiServer(
        tmp_path / "state", builtin.BUILTIN_KINDS, token=TOKEN, logs=log_files, secure_port=0
    ) as server:
        trust = ssl.create_default_context(cafile=server.certificate)
        yield KubectlServer(
            "embedded", server.secure_url, TOKEN, trust, "default", control_plane_binaries.kubectl, home
        )


async def create_running_pod(server: KubectlServer) -> str:
    """Create a pod with a running container; returns its UID."""
    stored = await server.create_and_get(POD)
    state: Manifest = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "state": state}],
    }
    await server.send("PATCH", f"{server.path(POD, name='pod')}/status", {"status": status}, media=MERGE)
    return str(stored["metadata"]["uid"])


async def test_logs_with_each_option(served: KubectlServer, log_files: LogFiles) -> None:
    writer = log_files.open(await create_running_pod(served), "main", 0)
    writer.write(b"one\ntwo\nthree\n")
    log_files.close(writer)
    assert await served.kubectl("logs", "pod") == "one\ntwo\nthree\n"
    assert await served.kubectl("logs", "pod", "--tail=1") == "three\n"
    assert await served.kubectl("logs", "pod", "-c", "main", "--limit-bytes=3") == "one"
    assert (await served.kubectl("logs", "pod", "--timestamps")).split()[1::2] == ["one", "two", "three"]
    wrong = await served.run_kubectl("logs", "pod", "-c", "other")
    assert "container other is not valid for pod pod" in wrong.stderr


async def test_logs_are_followed(served: KubectlServer, log_files: LogFiles) -> None:
    writer = log_files.open(await create_running_pod(served), "main", 0)
    writer.write(b"one\n")
    command = [str(served.kubectl_program), f"--kubeconfig={served.kubeconfig}", "logs", "--follow", "pod"]
    following = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={"HOME": str(served.home)}
    )
    assert following.stdout
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            assert await following.stdout.readline() == b"one\n"
            writer.write(b"two\n")
            assert await following.stdout.readline() == b"two\n"
            log_files.close(writer)
            assert await following.stdout.read() == b""
            assert await following.wait() == 0
    finally:
        if following.returncode is None:
            following.kill()
            await following.wait()
