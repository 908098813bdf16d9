"""The flags of the servers of a control plane: loopback only, and defaults unless they would make tests too slow.

A node is unreachable after 16 s without a lease renewal and its pods are evicted 5 s later; defaults: 50 s and 5 min.
"""

from dataclasses import dataclass
from pathlib import Path

from testbed.assets import Binaries
from testbed.credentials import Credentials
from testbed.ports import LOOPBACK, find_free_ports

ETCD_QUOTA_BYTES = 8 * 1024**3  # only `ControlPlane.compact` compacts
NODE_GRACE = "16s"
TOLERATION_SECONDS = 5
RATE_LIMIT_FLAGS = (
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
)  # the default of 20 requests per second would distort measurements


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int

    @classmethod
    def allocate(cls) -> "Ports":
        return cls(*find_free_ports(5))


@dataclass(frozen=True)
class Layout:
    """The files and ports of one control plane."""

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
        *serving_flags(layout, layout.ports.api_server),
        f"--advertise-address={LOOPBACK}",  # by default it looks for an interface; a sandbox may have none
        f"--etcd-servers={layout.etcd_url}",
        "--etcd-compaction-interval=0",  # no compaction in the middle of a test
        # PodTemplates are read from etcd, so that a compaction causes a real 410 at once; other kinds are served from
        # the watch cache.
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
        "--audit-log-maxsize=0",  # no rotation: a LogPosition is an offset in this file
        f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
        f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}",
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        "--allow-privileged=true",
        "--profiling=false",
        # Ends open watches on SIGTERM: a stop takes 1.2 s; without it, more than 4 s.
        "--shutdown-watch-termination-grace-period=1s",
    ]


def controller_manager(layout: Layout, kubeconfig: Path) -> list[str | Path]:
    return [
        layout.binaries.controller_manager,
        *serving_flags(layout, layout.ports.controller_manager),
        *client_flags(kubeconfig),
        f"--root-ca-file={layout.credentials.authority_file}",
        f"--service-account-private-key-file={layout.credentials.service_account_key}",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={NODE_GRACE}",
        f"--node-startup-grace-period={NODE_GRACE}",
        "--node-eviction-rate=100",  # the default evicts one node in ten seconds
        "--horizontal-pod-autoscaler-sync-period=1s",
    ]


def scheduler(layout: Layout, kubeconfig: Path) -> list[str | Path]:
    return [layout.binaries.scheduler, *serving_flags(layout, layout.ports.scheduler), *client_flags(kubeconfig)]


def serving_flags(layout: Layout, port: int) -> list[str]:
    """Address and serving certificate of a server of Kubernetes."""
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.credentials.serving_certificate}",
        f"--tls-private-key-file={layout.credentials.serving_key}",
    ]


def client_flags(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        *RATE_LIMIT_FLAGS,
    ]
