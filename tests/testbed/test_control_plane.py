"""The control plane is a real one and isolated from others, and has what the other tests depend on."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.assets import Binaries, kubernetes_version
from testbed.control_plane import ControlPlane
from testbed.flags import Ports
from testbed.request import HTTPResponse, RequestError, send

CLEANUP_TIMEOUT_SECONDS = 100.0
OWNER = """
import json, sys
from testbed.assets import ensure_binaries
from testbed.control_plane import ControlPlane
with ControlPlane.start(ensure_binaries()) as owned:
    print(json.dumps({"pids": list(owned.pids.values()), "directory": str(owned.directory)}), flush=True)
    sys.stdin.read()
"""


def request(control_plane: ControlPlane, method: str, path: str, body: object = None) -> HTTPResponse:
    token = control_plane.credentials.token_of("tester-0")
    return send(method, control_plane.server + path, body=body, token=token, trust=control_plane.trust)


def make_pod_template(name: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {"metadata": {"name": name}, "template": {"spec": {"containers": containers}}}


async def test_programs_have_the_version_of_go_mod(control_plane: ControlPlane) -> None:
    output = await control_plane.kubectl("version")
    assert f"Client Version: {kubernetes_version()}\n" in output
    assert f"Server Version: {kubernetes_version()}\n" in output


async def test_pod_can_be_created_in_a_new_namespace(control_plane: ControlPlane, namespace: str) -> None:
    await control_plane.kubectl("run", "sleeper", "--image=none", "--namespace", namespace, user="tester-0")
    assert "pod/sleeper" in await control_plane.kubectl("get", "pods", "--namespace", namespace, "--output=name")


async def test_unprivileged_user_is_authenticated_and_forbidden(control_plane: ControlPlane) -> None:
    with pytest.raises(RequestError, match='User "nobody-0" cannot list resource "pods"'):
        await control_plane.kubectl("get", "pods", user="nobody-0")


async def test_unknown_user_error_lists_the_users(control_plane: ControlPlane) -> None:
    with pytest.raises(LookupError, match=r"no user 'unknown': use one of admin, .*tester-0"):
        control_plane.connection("unknown")


async def test_kubeconfig_is_readable_by_its_owner_only(control_plane: ControlPlane) -> None:
    assert control_plane.kubeconfig.stat().st_mode & 0o777 == 0o600


async def test_client_certificate_has_user_and_group(control_plane: ControlPlane) -> None:
    files = control_plane.issue_client_certificate("ada", group="engineers")
    context = ssl.create_default_context(cafile=control_plane.credentials.authority_file)
    context.load_cert_chain(files.certificate, files.key)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    url = f"{control_plane.server}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = send("POST", url, body=review, trust=context).json()["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("ada", ["engineers", "system:authenticated"])


async def test_compaction_expires_watches_and_continue_tokens(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/podtemplates"
    for name in ("one", "two"):
        assert request(control_plane, "POST", path, make_pod_template(name)).status == 201
    page = request(control_plane, "GET", f"{path}?limit=1").json()["metadata"]

    await control_plane.compact()

    watch = request(
        control_plane, "GET", f"{path}?watch=true&timeoutSeconds=5&resourceVersion={page['resourceVersion']}"
    )
    error = watch.json()
    assert (watch.status, error["type"], error["object"]["code"]) == (200, "ERROR", 410)
    next_page = request(control_plane, "GET", f"{path}?limit=1&continue={page['continue']}")
    assert (next_page.status, next_page.json()["reason"]) == (410, "Expired")


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_restarted_api_server_has_its_data(control_plane: ControlPlane, namespace: str, how: str) -> None:
    await control_plane.kubectl("create", "configmap", "stored", "--namespace", namespace)
    pid = control_plane.api_server.pid
    await (control_plane.api_server.stop() if how == "stop" else control_plane.api_server.kill())
    assert request(control_plane, "GET", "/readyz").status == 0
    await control_plane.api_server.start()
    assert control_plane.api_server.pid != pid
    assert "configmap/stored" in await control_plane.kubectl("get", "configmaps", "-n", namespace, "-o=name")


async def test_disturbed_control_plane_recovers(control_plane: ControlPlane) -> None:
    await control_plane.scheduler.stop()
    await control_plane.etcd.kill()
    await control_plane.recover()
    assert [server.exit_code for server in control_plane.servers] == [None] * 4
    await control_plane.delete_namespace(await control_plane.create_namespace("after"))


async def test_two_control_planes_are_isolated(
    control_plane: ControlPlane,
    control_plane_binaries: Binaries,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used, free = int(control_plane.server.rpartition(":")[2]), Ports.allocate()
    first = Ports(free.etcd, free.etcd_peer, used, free.controller_manager, free.scheduler)
    choices = iter([first, Ports.allocate()])
    monkeypatch.setattr(Ports, "allocate", lambda: next(choices))
    with ControlPlane.start(control_plane_binaries) as other:
        assert next(choices, None) is None  # the used port caused a second attempt with others
        assert f"namespace/{namespace}" not in await other.kubectl("get", "namespaces", "-o=name")
        response = send("GET", f"{other.server}/readyz", trust=control_plane.trust)
        assert (response.status, b"CERTIFICATE_VERIFY_FAILED" in response.body) == (0, True)
        assert not set(other.pids.values()) & set(control_plane.pids.values())
    assert f"namespace/{namespace}" in await control_plane.kubectl("get", "namespaces", "-o=name")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
@pytest.mark.usefixtures("control_plane_binaries")
def test_killed_owner_leaves_no_process_and_no_file() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        owned = json.loads(owner.stdout.readline())
        left = {Path(f"/proc/{pid}") for pid in owned["pids"]} | {Path(owned["directory"])}
        assert len(left) == 6
        assert all(path.exists() for path in left)
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + CLEANUP_TIMEOUT_SECONDS
    while (left := {path for path in left if path.exists()}) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
