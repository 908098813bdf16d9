"""A real Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

Ready 3 to 5 s after the start on two idle cores, 7 s on busy ones. No process outlives its owner: see supervisor.py.
"""

import asyncio
import base64
import secrets
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from paddle_operator.kube.config.server import StaticServerConfig
from testbed import flags
from testbed.assets import Binaries
from testbed.audit import POLICY, AuditLog
from testbed.credentials import (
    ADMIN,
    AUDIT_MARKER,
    CONTROLLER_MANAGER,
    SCHEDULER,
    TESTERS_GROUP,
    ClientCertificate,
    Credentials,
)
from testbed.flags import Layout, Ports
from testbed.ports import LOOPBACK
from testbed.request import HTTPResponse, RequestError, send
from testbed.servers import PortInUseError, ServerProcess, ServerStartError, SupervisedServers, SupervisorClient

MAX_START_ATTEMPTS = 5  # each with other ports, in case another process takes a port meanwhile
SERVICE_ACCOUNT_TIMEOUT_SECONDS = 100.0
POLL_SECONDS = 0.02


class ControlPlane(SupervisedServers):
    """Running servers, their credentials and their audit log.

    `api_server`, `etcd`, `controller_manager` and `scheduler` can each be stopped, killed and restarted. Users and
    their tokens are in credentials.py.
    """

    def __init__(self, layout: Layout, supervision: SupervisorClient) -> None:
        self.server = layout.server
        self.directory = layout.directory
        self.credentials = layout.credentials
        self.trust = layout.credentials.trust
        self.binaries = layout.binaries
        self.started_in_seconds = 0.0
        self._layout = layout
        super().__init__(supervision)
        self.kubeconfig = self.write_kubeconfig(ADMIN)
        self.etcd = self._server(flags.etcd(layout), f"{layout.etcd_url}/health")
        self.api_server = self._server(flags.api_server(layout), f"{layout.server}/readyz")
        self.controller_manager = self._server(
            flags.controller_manager(layout, self.write_kubeconfig(CONTROLLER_MANAGER)),
            f"https://{LOOPBACK}:{layout.ports.controller_manager}/healthz",
        )
        self.scheduler = self._server(
            flags.scheduler(layout, self.write_kubeconfig(SCHEDULER)),
            f"https://{LOOPBACK}:{layout.ports.scheduler}/healthz",
        )
        self.audit = AuditLog(layout.audit_log, AUDIT_MARKER, self._send_audit_marker)

    @classmethod
    def start(cls, binaries: Binaries) -> Self:
        """Start a control plane and wait until it and the default ServiceAccount are ready. Raises ServerStartError."""
        for attempt in range(1, MAX_START_ATTEMPTS + 1):
            try:
                return cls._start_once(binaries)
            except PortInUseError:
                if attempt == MAX_START_ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    @classmethod
    def _start_once(cls, binaries: Binaries) -> Self:
        started_at = time.monotonic()
        directory = Path(tempfile.mkdtemp(prefix="paddle-testbed-"))
        supervision = SupervisorClient(directory)
        try:
            credentials = Credentials(directory / "credentials")
            control_plane = cls(Layout(directory, binaries, Ports.allocate(), credentials), supervision)
            control_plane._start_servers()
        except BaseException:
            supervision.close()
            raise
        control_plane.started_in_seconds = time.monotonic() - started_at
        return control_plane

    def _start_servers(self) -> None:
        self._layout.audit_policy.write_text(POLICY)
        self.etcd.launch()
        self.api_server.launch()  # retries until etcd is ready
        self.etcd.wait_until_ready()
        self.api_server.wait_until_ready()
        self.controller_manager.launch()
        self.scheduler.launch()
        self._request_json("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", TESTERS_BINDING)
        self.controller_manager.wait_until_ready()
        self.scheduler.wait_until_ready()
        self._wait_for_default_account("default")

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        """In the order of their dependencies."""
        return (self.etcd, self.api_server, self.controller_manager, self.scheduler)

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by name, including the supervisor's."""
        return {"supervisor": self._supervision.pid} | {server.name: server.pid for server in self.servers}

    async def recover(self) -> None:
        """Start servers that are not running, and restart those that depend on a disturbed one.

        Without a restart the controller manager recovers 6 to 30 s after the API server, since its clients back off.
        """
        dependency_disturbed = False
        for server in self.servers:
            was_disturbed = server.disturbed or server.exit_code is not None
            if dependency_disturbed:
                await server.kill()
            if server.exit_code is not None:
                await server.start()
            server.disturbed = False
            dependency_disturbed |= was_disturbed and server in (self.etcd, self.api_server)

    def connection(self, user: str = ADMIN) -> StaticServerConfig:
        """The configuration of a client with the token of a user. Raises LookupError for an unknown user."""
        return StaticServerConfig(self.server, self.credentials.token_of(user), self.trust)

    def write_kubeconfig(self, user: str) -> Path:
        """Write a kubeconfig that refers to no other file. Raises LookupError for an unknown user."""
        return self.credentials.write_kubeconfig(self.server, user)

    def issue_client_certificate(self, user: str, group: str = "") -> ClientCertificate:
        """Issue a certificate and key for a user of any name."""
        return self.credentials.issue_client_certificate(user, group)

    async def kubectl(self, *arguments: str, user: str = ADMIN, stdin: str = "") -> str:
        """Run kubectl and return its output. Raises RequestError with its error output if it fails."""
        # Its own cache directory: the default one may have the discovery of an earlier server on this port.
        options = (f"--kubeconfig={self.write_kubeconfig(user)}", f"--cache-dir={self.directory / 'kubectl-cache'}")
        command = [str(self.binaries.kubectl), *options, *arguments]
        result = await asyncio.to_thread(
            subprocess.run, command, input=stdin, capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise RequestError(
                f"kubectl {' '.join(arguments)}: {result.stderr.strip()} (exit code {result.returncode})"
            )
        return result.stdout

    async def create_namespace(self, prefix: str = "test") -> str:
        """Create a namespace with its default ServiceAccount, which pods need; returns its name."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        await asyncio.to_thread(self._request_json, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        await asyncio.to_thread(self._wait_for_default_account, name)
        return name

    async def delete_namespace(self, name: str) -> None:
        """Start the deletion and do not wait until the controller manager has emptied the namespace."""
        response = await asyncio.to_thread(self._send, "DELETE", f"/api/v1/namespaces/{name}")
        if not response.ok and response.status != 404:
            raise RequestError(f"DELETE namespace {name}: {response.body.decode(errors='replace')} ({response.status})")

    async def compact(self) -> int:
        """Compact the history of etcd; returns the oldest revision left.

        From now on every earlier resourceVersion and `continue` token of PodTemplates gets 410.
        """
        return await asyncio.to_thread(self._compact)

    def _compact(self) -> int:
        # A watch from version v begins at v + 1, and the oldest revision is still served. Two writes to a key outside
        # Kubernetes make even the newest version too old.
        unrelated = {"key": base64.b64encode(b"testbed").decode()}
        for _ in range(2):
            response = send("POST", f"{self._layout.etcd_url}/v3/kv/put", body=unrelated)
        revision = str(response.json()["header"]["revision"])
        result = send(
            "POST", f"{self._layout.etcd_url}/v3/kv/compaction", body={"revision": revision, "physical": True}
        )
        if not result.ok:
            raise RequestError(f"etcd did not compact up to revision {revision}: {result.body.decode()}")
        return int(revision)

    def _server(self, command: list[str | Path], health_url: str) -> ServerProcess:
        token = self.credentials.token_of(ADMIN)

        def is_ready() -> bool:
            return send("GET", health_url, token=token, trust=self.trust).ok

        program = Path(command[0])
        return ServerProcess(self._supervision, command, self._layout.log_of(program), is_ready)

    def _send(self, method: str, path: str, body: object = None, user: str = ADMIN) -> HTTPResponse:
        token = self.credentials.token_of(user)
        return send(method, f"{self.server}{path}", body=body, token=token, trust=self.trust)

    def _request_json(self, method: str, path: str, body: object = None, user: str = ADMIN) -> Any:
        response = self._send(method, path, body, user)
        if not response.ok:
            raise RequestError(f"{method} {path}: {response.body.decode(errors='replace')} ({response.status})")
        return response.json()

    def _send_audit_marker(self, marker: str) -> None:
        # A SelfSubjectReview is allowed for every user, is logged as a write and stores nothing.
        self._request_json(
            "POST",
            f"/apis/authentication.k8s.io/v1/selfsubjectreviews?fieldManager={marker}",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            user=AUDIT_MARKER,
        )

    def _wait_for_default_account(self, namespace: str) -> None:
        """The API server rejects pods without it; the controller manager creates it within 9 to 65 ms."""
        deadline = time.monotonic() + SERVICE_ACCOUNT_TIMEOUT_SECONDS
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        while not self._send("GET", path).ok:
            if time.monotonic() > deadline:
                raise ServerStartError(
                    f"namespace {namespace} has no default ServiceAccount: is kube-controller-manager up?"
                )
            time.sleep(POLL_SECONDS)


TESTERS_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "testers"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": TESTERS_GROUP}],
}
