"""The control plane is real, is ours alone, and does what the other tests lean on."""

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

GONE_WITHIN_SECONDS = 100.0
OWNER = """
import json, sys
from testbed.assets import binaries
from testbed.control_plane import ControlPlane
with ControlPlane.start(binaries()) as owned:
    print(json.dumps({"pids": list(owned.pids.values()), "directory": str(owned.directory)}), flush=True)
    sys.stdin.read()
"""


def ask(control_plane: ControlPlane, method: str, path: str, body: object = None) -> HTTPResponse:
    token = control_plane.credentials.token_of("tester-0")
    return send(method, control_plane.server + path, body=body, token=token, trust=control_plane.trust)


def a_pod_template(name: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {"metadata": {"name": name}, "template": {"spec": {"containers": containers}}}


async def test_programs_have_the_version_of_go_mod(control_plane: ControlPlane) -> None:
    said = await control_plane.kubectl("version")
    assert f"Client Version: {kubernetes_version()}\n" in said
    assert f"Server Version: {kubernetes_version()}\n" in said


async def test_a_pod_can_be_made_in_a_fresh_namespace(control_plane: ControlPlane, namespace: str) -> None:
    await control_plane.kubectl("run", "sleeper", "--image=none", "--namespace", namespace, user="tester-0")
    assert "pod/sleeper" in await control_plane.kubectl("get", "pods", "--namespace", namespace, "--output=name")


async def test_a_nobody_is_known_and_may_do_nothing(control_plane: ControlPlane) -> None:
    with pytest.raises(RequestError, match='User "nobody-0" cannot list resource "pods"'):
        await control_plane.kubectl("get", "pods", user="nobody-0")


async def test_a_user_that_does_not_exist_is_named_with_those_that_do(control_plane: ControlPlane) -> None:
    with pytest.raises(LookupError, match=r"no user 'somebody': take one of admin, .*tester-0"):
        control_plane.connection("somebody")


async def test_a_kubeconfig_is_readable_for_its_owner_only(control_plane: ControlPlane) -> None:
    assert control_plane.kubeconfig.stat().st_mode & 0o777 == 0o600


async def test_a_client_certificate_names_its_user_and_group(control_plane: ControlPlane) -> None:
    files = control_plane.client_certificate("ada", group="engineers")
    proof = ssl.create_default_context(cafile=control_plane.credentials.authority_file)
    proof.load_cert_chain(files.certificate, files.key)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    url = f"{control_plane.server}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = send("POST", url, body=review, trust=proof).json()["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("ada", ["engineers", "system:authenticated"])


async def test_a_compaction_expires_watches_and_continue_tokens(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/podtemplates"
    for name in ("one", "two"):
        assert ask(control_plane, "POST", path, a_pod_template(name)).status == 201
    page = ask(control_plane, "GET", f"{path}?limit=1").json()["metadata"]

    await control_plane.compact()

    watch = ask(control_plane, "GET", f"{path}?watch=true&timeoutSeconds=5&resourceVersion={page['resourceVersion']}")
    error = watch.json()
    assert (watch.status, error["type"], error["object"]["code"]) == (200, "ERROR", 410)
    rest = ask(control_plane, "GET", f"{path}?limit=1&continue={page['continue']}")
    assert (rest.status, rest.json()["reason"]) == (410, "Expired")


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_an_api_server_that_comes_back_has_its_data(
    control_plane: ControlPlane, namespace: str, how: str
) -> None:
    await control_plane.kubectl("create", "configmap", "kept", "--namespace", namespace)
    pid = control_plane.api_server.pid
    await (control_plane.api_server.stop() if how == "stop" else control_plane.api_server.kill())
    assert ask(control_plane, "GET", "/readyz").status == 0
    await control_plane.api_server.start()
    assert control_plane.api_server.pid != pid
    assert "configmap/kept" in await control_plane.kubectl("get", "configmaps", "-n", namespace, "-o=name")


async def test_a_disturbed_control_plane_recovers(control_plane: ControlPlane) -> None:
    await control_plane.scheduler.stop()
    await control_plane.etcd.kill()
    await control_plane.recover()
    assert [server.exit_code for server in control_plane.servers] == [None] * 4
    await control_plane.delete_namespace(await control_plane.create_namespace("after"))


async def test_two_control_planes_at_once_do_not_meet(
    control_plane: ControlPlane,
    control_plane_binaries: Binaries,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, free = int(control_plane.server.rpartition(":")[2]), Ports.free()
    first = Ports(free.etcd, free.etcd_peer, taken, free.controller_manager, free.scheduler)
    choices = iter([first, Ports.free()])
    monkeypatch.setattr(Ports, "free", lambda: next(choices))
    with ControlPlane.start(control_plane_binaries) as other:
        assert next(choices, None) is None  # the port that was taken made it start again with others
        assert f"namespace/{namespace}" not in await other.kubectl("get", "namespaces", "-o=name")
        stranger = send("GET", f"{other.server}/readyz", trust=control_plane.trust)
        assert (stranger.status, b"CERTIFICATE_VERIFY_FAILED" in stranger.body) == (0, True)
        assert not set(other.pids.values()) & set(control_plane.pids.values())
    assert f"namespace/{namespace}" in await control_plane.kubectl("get", "namespaces", "-o=name")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.usefixtures("control_plane_binaries")
def test_an_owner_that_is_killed_leaves_no_process_and_no_file() -> None:
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
    deadline = time.monotonic() + GONE_WITHIN_SECONDS
    while (left := {path for path in left if path.exists()}) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
