"""The audit log counts writes exactly: the budgets of API calls depend on it."""

import asyncio
from collections import Counter

import pytest

from testbed.audit import AuditLog
from testbed.control_plane import ControlPlane
from testbed.request import HTTPResponse, send


def request(control_plane: ControlPlane, user: str, method: str, path: str, body: object = None) -> HTTPResponse:
    token = control_plane.credentials.token_of(user)
    return send(method, control_plane.server + path, body=body, token=token, trust=control_plane.trust)


def make_config_map(name: str, size: int = 1) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"content": "x" * size}}


async def test_each_write_is_counted_once_for_its_user(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with asyncio.timeout(200), control_plane.audit.recording() as writes:
        sent = [
            # A response of more than 4 KB is sent in chunks: its line must be in the log all the same.
            asyncio.to_thread(
                request, control_plane, f"tester-{index % 3}", "POST", path, make_config_map(f"c{index}", 20_000)
            )
            for index in range(60)
        ]
        assert {response.status for response in await asyncio.gather(*sent)} == {201}
    ours = writes.by("tester-0", "tester-1", "tester-2")
    assert ours.counts() == {(f"tester-{index}", "create", "configmaps"): 20 for index in range(3)}
    assert {write.name for write in ours} == {f"c{index}" for index in range(60)}
    assert {write.namespace for write in ours} == {namespace}
    assert all(write.received_at < write.completed_at for write in ours)


async def test_forbidden_writes_are_counted_and_reads_are_not(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with control_plane.audit.recording() as writes:
        request(control_plane, "tester-4", "GET", path)
        request(control_plane, "nobody-1", "POST", path, make_config_map("mine"))
        request(control_plane, "tester-4", "DELETE", path)
        await control_plane.kubectl("run", "pod", "--image=none", "-n", namespace, user="tester-4")
        touch = '--patch={"status": {"message": "hello"}}'
        await control_plane.kubectl(
            "patch", "pod", "pod", "-n", namespace, "--subresource=status", "--type=merge", touch, user="tester-4"
        )
    counts = Counter((write.user, write.verb, write.target, write.code) for write in writes.by("tester-4", "nobody-1"))
    assert counts == {
        ("nobody-1", "create", "configmaps", 403): 1,
        ("tester-4", "deletecollection", "configmaps", 200): 1,
        ("tester-4", "create", "pods", 201): 1,
        ("tester-4", "patch", "pods/status", 200): 1,
    }
    assert len(writes.by("tester-4").to("pods")) == 1


async def test_only_writes_between_two_positions_are_counted(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    positions = []
    for name in ("before", "between", "after"):
        request(control_plane, "tester-5", "POST", path, make_config_map(name))
        positions.append(await control_plane.audit.mark())
    writes = await control_plane.audit.between(positions[0], positions[1])
    assert [write.name for write in writes.by("tester-5")] == ["between"]
    assert not writes.by("audit-marker")


async def test_positions_are_valid_after_an_api_server_crash(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with control_plane.audit.recording() as writes:
        request(control_plane, "tester-6", "POST", path, make_config_map("before"))
        await control_plane.api_server.kill()
        await control_plane.api_server.start()
        request(control_plane, "tester-6", "POST", path, make_config_map("after"))
    assert [write.name for write in writes.by("tester-6")] == ["before", "after"]


async def test_unlogged_marker_raises_timeout_error(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.audit.MARKER_TIMEOUT_SECONDS", 0.05)
    audit = AuditLog(control_plane.directory / "audit.log", "audit-marker", lambda marker: None)
    with pytest.raises(TimeoutError, match="is not in the audit log"):
        await audit.mark()
