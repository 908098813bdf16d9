"""The audit log counts exactly: budgets on API calls stand on it."""

import asyncio
from collections import Counter

import pytest

from testbed.audit import AuditLog
from testbed.control_plane import ControlPlane
from testbed.request import HTTPResponse, send


def ask(control_plane: ControlPlane, user: str, method: str, path: str, body: object = None) -> HTTPResponse:
    token = control_plane.credentials.token_of(user)
    return send(method, control_plane.server + path, body=body, token=token, trust=control_plane.trust)


def a_config_map(name: str, size: int = 1) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"content": "x" * size}}


async def test_every_write_counts_once_and_under_its_user(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with asyncio.timeout(200), control_plane.audit.recording() as writes:
        sent = [
            # Beyond 4 KB a reply leaves in pieces: its line must be there all the same.
            asyncio.to_thread(
                ask, control_plane, f"tester-{index % 3}", "POST", path, a_config_map(f"c{index}", 20_000)
            )
            for index in range(60)
        ]
        assert {reply.status for reply in await asyncio.gather(*sent)} == {201}
    ours = writes.by("tester-0", "tester-1", "tester-2")
    assert ours.counted() == {(f"tester-{index}", "create", "configmaps"): 20 for index in range(3)}
    assert {write.name for write in ours} == {f"c{index}" for index in range(60)}
    assert {write.namespace for write in ours} == {namespace}
    assert all(write.received_at < write.completed_at for write in ours)


async def test_reads_do_not_count_and_refused_writes_do(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with control_plane.audit.recording() as writes:
        ask(control_plane, "tester-4", "GET", path)
        ask(control_plane, "nobody-1", "POST", path, a_config_map("mine"))
        ask(control_plane, "tester-4", "DELETE", path)
        await control_plane.kubectl("run", "pod", "--image=none", "-n", namespace, user="tester-4")
        touch = '--patch={"status": {"message": "hello"}}'
        await control_plane.kubectl(
            "patch", "pod", "pod", "-n", namespace, "--subresource=status", "--type=merge", touch, user="tester-4"
        )
    told = Counter((write.user, write.verb, write.target, write.code) for write in writes.by("tester-4", "nobody-1"))
    assert told == {
        ("nobody-1", "create", "configmaps", 403): 1,
        ("tester-4", "deletecollection", "configmaps", 200): 1,
        ("tester-4", "create", "pods", 201): 1,
        ("tester-4", "patch", "pods/status", 200): 1,
    }
    assert len(writes.by("tester-4").to("pods")) == 1


async def test_only_what_lies_between_the_moments_counts(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    moments = []
    for name in ("before", "between", "after"):
        ask(control_plane, "tester-5", "POST", path, a_config_map(name))
        moments.append(await control_plane.audit.mark())
    writes = await control_plane.audit.between(moments[0], moments[1])
    assert [write.name for write in writes.by("tester-5")] == ["between"]
    assert not writes.by("audit-marker")


async def test_moments_hold_across_a_crash_of_the_api_server(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with control_plane.audit.recording() as writes:
        ask(control_plane, "tester-6", "POST", path, a_config_map("before"))
        await control_plane.api_server.kill()
        await control_plane.api_server.start()
        ask(control_plane, "tester-6", "POST", path, a_config_map("after"))
    assert [write.name for write in writes.by("tester-6")] == ["before", "after"]


async def test_a_marker_that_is_not_logged_is_an_error(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.audit.LINE_WITHIN_SECONDS", 0.05)
    silent = AuditLog(control_plane.directory / "audit.log", "audit-marker", lambda marker: None)
    with pytest.raises(TimeoutError, match="is not in the audit log"):
        await silent.mark()
