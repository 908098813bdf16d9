"""The flags of each server of a control plane: loopback only, and stock values unless a test could not wait that long.

A node is unhealthy after 16 s of silence and its pods are tolerated there for 5 s; stock values are 50 s and 5 minutes.
"""

from dataclasses import dataclass
from pathlib import Path

from testbed.assets import Binaries
from testbed.credentials import Credentials
from testbed.ports import LOOPBACK, find_free_ports

ETCD_QUOTA_BYTES = 8 * 1024**3  # nothing is compacted unless a test asks for it
NODE_GRACE = "16s"
TOLERATION_SECONDS = 5
UNLIMITED_RATE = ("--kube-api-qps=1000", "--kube-api-burst=2000")  # the stock 20 requests a second would be measured


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int

    @classmethod
    def free(cls) -> "Ports":
        return cls(*find_free_ports(5))


@dataclass(frozen=True)
class Layout:
    """Where everything of one control plane lies and listens."""

    directory: Path
    binaries: Binaries
    ports: Ports
    credentials: Credentials

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.ports.api_server}"

    @property
    def etcd_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.etcd}"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def audit_policy(self) -> Path:
        return self.directory / "audit-policy.json"

    def log_of(self, program: Path) -> Path:
        return self.directory / f"{program.name}.log"


def etcd(layout: Layout) -> list[str | Path]:
    peer_url = f"http://{LOOPBACK}:{layout.ports.etcd_peer}"
    return [
        layout.binaries.etcd,
        "--name=testbed",
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=testbed={peer_url}",
        f"--quota-backend-bytes={ETCD_QUOTA_BYTES}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(layout: Layout) -> list[str | Path]:
    return [
        layout.binaries.api_server,
        *serving(layout, layout.ports.api_server),
        f"--advertise-address={LOOPBACK}",  # otherwise it looks for an interface, and a sandbox may have none
        f"--etcd-servers={layout.etcd_url}",
        "--etcd-compaction-interval=0",  # history ends when a test says so, and not in the middle of another test
        # PodTemplates come straight from etcd, so that a compaction gives a real 410 at once; other kinds would still
        # be served from the watch cache.
        "--watch-cache-sizes=podtemplates#0",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.credentials.service_account_key}",
        f"--service-account-signing-key-file={layout.credentials.service_account_key}",
        f"--client-ca-file={layout.credentials.authority_file}",
        f"--token-auth-file={layout.credentials.token_file}",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        f"--audit-log-path={layout.audit_log}",
        f"--audit-policy-file={layout.audit_policy}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=0",  # no rotation: moments are offsets in this one file
        f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
        f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}",
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        "--allow-privileged=true",
        "--profiling=false",
        # Ends open watches on SIGTERM, so that a stop takes 1.2 s; without it 4 s were not enough.
        "--shutdown-watch-termination-grace-period=1s",
    ]


def controller_manager(layout: Layout, kubeconfig: Path) -> list[str | Path]:
    return [
        layout.binaries.controller_manager,
        *serving(layout, layout.ports.controller_manager),
        *client_of(kubeconfig),
        f"--root-ca-file={layout.credentials.authority_file}",
        f"--service-account-private-key-file={layout.credentials.service_account_key}",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={NODE_GRACE}",
        f"--node-startup-grace-period={NODE_GRACE}",
        "--node-eviction-rate=100",  # the stock rate gives up one node in ten seconds
        "--horizontal-pod-autoscaler-sync-period=1s",
    ]


def scheduler(layout: Layout, kubeconfig: Path) -> list[str | Path]:
    return [layout.binaries.scheduler, *serving(layout, layout.ports.scheduler), *client_of(kubeconfig)]


def serving(layout: Layout, port: int) -> list[str]:
    """How all three servers of Kubernetes listen: with a certificate by which we know our own."""
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.credentials.serving_certificate}",
        f"--tls-private-key-file={layout.credentials.serving_key}",
    ]


def client_of(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        *UNLIMITED_RATE,
    ]
