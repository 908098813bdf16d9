"""A real Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

Ready 3 to 5 s after the start on two cores, 7 s when others were at work on them.
No process of it outlives its owner: see supervisor.py.
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

ATTEMPTS = 5  # each with other ports; one is enough unless another process takes a port in the same second
ACCOUNT_WITHIN_SECONDS = 100.0
POLL_SECONDS = 0.02


class ControlPlane(SupervisedServers):
    """Running servers and everything a test needs to talk to them, or to disturb them.

    `api_server`, `etcd`, `controller_manager` and `scheduler` can each be stopped, killed and started again. Users and
    their tokens are in credentials.py; `audit` tells who wrote what.
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
        """A control plane that answers, with its users and the default ServiceAccount in place. Raises ServerStartError."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return cls._start_once(binaries)
            except PortInUseError:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    @classmethod
    def _start_once(cls, binaries: Binaries) -> Self:
        began_at = time.monotonic()
        directory = Path(tempfile.mkdtemp(prefix="paddle-testbed-"))
        supervision = SupervisorClient(directory)
        try:
            credentials = Credentials(directory / "credentials")
            control_plane = cls(Layout(directory, binaries, Ports.free(), credentials), supervision)
            control_plane._start_servers()
        except BaseException:
            supervision.close()
            raise
        control_plane.started_in_seconds = time.monotonic() - began_at
        return control_plane

    def _start_servers(self) -> None:
        self._layout.audit_policy.write_text(POLICY)
        self.etcd.launch()
        self.api_server.launch()  # waits for etcd by itself
        self.etcd.wait_until_ready()
        self.api_server.wait_until_ready()
        self.controller_manager.launch()
        self.scheduler.launch()
        self._needed("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", TESTERS_BINDING)
        self.controller_manager.wait_until_ready()
        self.scheduler.wait_until_ready()
        self._wait_for_default_account("default")

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        """In the order in which they need each other."""
        return (self.etcd, self.api_server, self.controller_manager, self.scheduler)

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by name, the supervisor's among them."""
        return {"supervisor": self._supervision.pid} | {server.name: server.pid for server in self.servers}

    async def recover(self) -> None:
        """After a disturbance: start what is not running, and anew what leans on a server that was disturbed.

        Left alone, the controller manager comes back 6 to 30 s after the API server, since its clients back off.
        """
        leans_on_disturbed = False
        for server in self.servers:
            shaken = server.disturbed or server.exit_code is not None
            if leans_on_disturbed:
                await server.kill()
            if server.exit_code is not None:
                await server.start()
            server.disturbed = False
            leans_on_disturbed |= shaken and server in (self.etcd, self.api_server)

    def connection(self, user: str = ADMIN) -> StaticServerConfig:
        """For a client that speaks as one of the users. Raises LookupError for one that does not exist."""
        return StaticServerConfig(self.server, self.credentials.token_of(user), self.trust)

    def write_kubeconfig(self, user: str) -> Path:
        """A kubeconfig that stands alone. Raises LookupError for a user that does not exist."""
        return self.credentials.kubeconfig(self.server, user)

    def client_certificate(self, user: str, group: str = "") -> ClientCertificate:
        """Certificate and key for a user of any name, whom the API server has not heard of before."""
        return self.credentials.client_certificate(user, group)

    async def kubectl(self, *arguments: str, user: str = ADMIN, stdin: str = "") -> str:
        """What kubectl prints. Raises RequestError with its complaint if it fails."""
        # A cache of its own: what kubectl remembers of a server that had this port before would be taken for ours.
        ours = (f"--kubeconfig={self.write_kubeconfig(user)}", f"--cache-dir={self.directory / 'kubectl-cache'}")
        command = [str(self.binaries.kubectl), *ours, *arguments]
        done = await asyncio.to_thread(
            subprocess.run, command, input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RequestError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()} (exit code {done.returncode})")
        return done.stdout

    async def create_namespace(self, prefix: str = "test") -> str:
        """The name of a new namespace in which pods can be made: its default ServiceAccount is there."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        await asyncio.to_thread(self._needed, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        await asyncio.to_thread(self._wait_for_default_account, name)
        return name

    async def delete_namespace(self, name: str) -> None:
        """Begin the deletion; the controller manager empties the namespace in its own time."""
        reply = await asyncio.to_thread(self._send, "DELETE", f"/api/v1/namespaces/{name}")
        if not reply.ok and reply.status != 404:
            raise RequestError(f"DELETE namespace {name}: {reply.body.decode(errors='replace')} ({reply.status})")

    async def compact(self) -> int:
        """Forget all of etcd's history, and tell the revision that is now the oldest.

        From here on every version and `continue` token of PodTemplates that anybody has seen gets 410.
        """
        return await asyncio.to_thread(self._compact)

    def _compact(self) -> int:
        # A watch from version v begins at v + 1, and the oldest revision is still served: with two writes of our own,
        # outside of what Kubernetes reads, even the newest version is too old.
        unrelated = {"key": base64.b64encode(b"testbed").decode()}
        for _ in range(2):
            wrote = send("POST", f"{self._layout.etcd_url}/v3/kv/put", body=unrelated)
        revision = str(wrote.json()["header"]["revision"])
        done = send("POST", f"{self._layout.etcd_url}/v3/kv/compaction", body={"revision": revision, "physical": True})
        if not done.ok:
            raise RequestError(f"etcd did not compact up to revision {revision}: {done.body.decode()}")
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

    def _needed(self, method: str, path: str, body: object = None, user: str = ADMIN) -> Any:
        reply = self._send(method, path, body, user)
        if not reply.ok:
            raise RequestError(f"{method} {path}: {reply.body.decode(errors='replace')} ({reply.status})")
        return reply.json()

    def _send_audit_marker(self, marker: str) -> None:
        # A review of oneself is open to every user, counts as a write and stores nothing.
        self._needed(
            "POST",
            f"/apis/authentication.k8s.io/v1/selfsubjectreviews?fieldManager={marker}",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            user=AUDIT_MARKER,
        )

    def _wait_for_default_account(self, namespace: str) -> None:
        """Without it the API server refuses pods; the controller manager makes it (both: 9 to 65 ms)."""
        deadline = time.monotonic() + ACCOUNT_WITHIN_SECONDS
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
