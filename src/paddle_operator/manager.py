"""What `/manager` runs: the operator as one process, with the flags of the Go operator and a few of its own.

`python -m paddle_operator.manager --help`
"""

import argparse
import asyncio
import logging
import re
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from paddle_operator import __version__
from paddle_operator.controllers.host_ports import PortBlocks
from paddle_operator.controllers.kinds import CONTROLLED_KINDS, ControlledKind, build_reconcilers
from paddle_operator.controllers.settings import Settings
from paddle_operator.kube.client import Client
from paddle_operator.kube.config import load
from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.errors import KubeError, RunnableFailed
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.health_server import MetricsAuth
from paddle_operator.kube.leader_election import Elector
from paddle_operator.kube.log_format import JsonLines, TextLines, start_logging
from paddle_operator.kube.manager import run_until_signalled
from paddle_operator.kube.objects import Key
from paddle_operator.kube.process import freeze_garbage_collector, raise_recursion_limit
from paddle_operator.kube.reconciler import ServingOptions, build_manager
from paddle_operator.plan.scheduling_policy import VOLCANO

log = logging.getLogger(__name__)

LEASE_NAME = "b2a304f2.paddlepaddle.org"  # the Go operator's: during a migration only one of the two is the leader
REPORTER = "paddle-operator"
LOG_FORMATS = {"text": TextLines, "json": JsonLines}
NAMESPACE_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LOG_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="manager", description=__doc__.splitlines()[0] if __doc__ else "")
    flags.add_argument(
        "--kubeconfig",
        type=Path,
        help="kubeconfig file; by default KUBECONFIG, the pod's service account, or ~/.kube/config",
    )
    flags.add_argument("--context", help="context of the kubeconfig")
    flags.add_argument(
        "--namespace",
        type=parse_namespaces,
        default="",
        help="namespaces of the jobs, separated by commas; by default all",
    )
    flags.add_argument(
        "--leader-elect",
        type=parse_bool,
        nargs="?",
        const=True,
        default=False,
        help="elect a leader, so that only one replica writes",
    )
    flags.add_argument(
        "--leader-election-namespace", default="", help="namespace of the lease; by default the pod's own"
    )
    flags.add_argument("--etcd-server", default="", help="host:port of the etcd that elastic jobs use")
    flags.add_argument(
        "--port-range", type=parse_port_range, default="35000,65000", help="FIRST,LAST port of jobs on the host network"
    )
    _add_serving_flags(flags)
    flags.add_argument("--log-format", choices=sorted(LOG_FORMATS), default="text")
    flags.add_argument("--log-level", choices=list(LOG_LEVELS), default="info")
    flags.add_argument("--version", action="version", version=__version__)
    flags.add_argument(
        "--scheduling", choices=["", VOLCANO], default="", help=f"{VOLCANO}: schedule all pods of a job as a gang"
    )
    _add_ignored_flags(flags)
    return flags


def _add_serving_flags(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("--metrics-bind-address", default=":8080", help="address that serves /metrics; 0 disables it")
    flags.add_argument(
        "--health-probe-bind-address", default=":8081", help="address that serves /healthz and /readyz; 0 disables it"
    )
    flags.add_argument("--metrics-cert-file", type=Path, help="TLS certificate of /metrics")
    flags.add_argument("--metrics-key-file", type=Path, help="private key of --metrics-cert-file")
    flags.add_argument("--metrics-token-file", type=Path, help="bearer token that clients of /metrics must send")


def _add_ignored_flags(flags: argparse.ArgumentParser) -> None:
    """Flags of the Go operator that have no effect: its manifests remain valid."""
    flags.add_argument("--initImage", "--initimage", dest="init_image", default=None, help=argparse.SUPPRESS)
    for name in ("devel", "encoder", "log-level", "stacktrace-level", "time-encoding"):
        flags.add_argument(f"--zap-{name}", dest="zap", nargs="?", const="", default=None, help=argparse.SUPPRESS)


def parse_bool(text: str) -> bool:
    """Parse a flag as Go does: --leader-elect, --leader-elect=true, --leader-elect=false."""
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text == "true"


def parse_namespaces(text: str) -> tuple[str, ...]:
    """Names separated by commas. The empty text stands for all namespaces; an empty name in a list is refused."""
    names = [name.strip() for name in text.split(",")] if text else [""]
    for name in names:
        if text and not NAMESPACE_PATTERN.fullmatch(name):
            raise argparse.ArgumentTypeError(
                f"{name!r} is not a namespace: write one, or several as a,b; omit the flag for all"
            )
    return tuple(dict.fromkeys(names))


def parse_port_range(text: str) -> range:
    first, _, last = text.partition(",")
    if not (first.isdigit() and last.isdigit() and 0 < int(first) < int(last) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of ports: write FIRST,LAST, such as 35000,65000")
    return range(int(first), int(last) + 1)


async def run(
    flags: argparse.Namespace, config: ServerConfig, kinds: Sequence[ControlledKind] = CONTROLLED_KINDS
) -> None:
    """Run until a signal. Raises RunnableFailed with the runnable that ended, and why."""
    async with AsyncExitStack() as stack:
        elector: Elector | None = None
        if flags.leader_elect:
            namespace = flags.leader_election_namespace or config.namespace
            elector_client = await stack.enter_async_context(Client(config, user_agent=f"{REPORTER}/leader-election"))
            elector = Elector(elector_client, Key(namespace, LEASE_NAME))
        fence = elector.fence if elector else None
        client = await stack.enter_async_context(Client(config, fence=fence, user_agent=REPORTER))
        recorder = Recorder(client, reporter=REPORTER)
        serving = ServingOptions(
            flags.health_probe_bind_address,
            flags.metrics_bind_address,
            MetricsAuth(flags.metrics_cert_file, flags.metrics_key_file, flags.metrics_token_file),
        )
        reconcilers = build_reconcilers(client, recorder, settings_of(flags), kinds)
        manager = build_manager(recorder, reconcilers, serving, elector, on_synced=freeze_garbage_collector)
        watched = ", ".join(f"{each.definition.kind}s" for each in kinds)
        log.info(
            "started",
            extra={
                "version": __version__,
                "server": config.server,
                "watches": f"{watched} in {', '.join(flags.namespace) or 'all namespaces'}",
                "leader_election": flags.leader_elect,
                "elastic": bool(flags.etcd_server),
                "gangs": flags.scheduling or "none",
            },
        )
        await run_until_signalled(manager)


def settings_of(flags: argparse.Namespace) -> list[Settings]:
    """One for each namespace: rights to two namespaces do not imply rights to all."""
    ports = PortBlocks.of(flags.port_range)
    return [
        Settings(
            namespace=namespace,
            several_namespaces=len(flags.namespace) > 1,
            etcd=flags.etcd_server,
            scheduling=flags.scheduling,
            ports=ports,
        )
        for namespace in flags.namespace
    ]


def log_ignored_flags(flags: argparse.Namespace) -> None:
    if flags.init_image is not None:
        log.info("--initImage has no effect: a ConfigMap holds containers back, not an init container")
    if flags.zap is not None:
        log.info("--zap-* flags have no effect: use --log-format and --log-level")


def main(arguments: Sequence[str] | None = None) -> int:
    flags = parser().parse_args(arguments)
    if flags.metrics_key_file and not flags.metrics_cert_file:
        parser().error("--metrics-key-file needs --metrics-cert-file: add it")
    start_logging(LOG_FORMATS[flags.log_format](), LOG_LEVELS[flags.log_level])
    log_ignored_flags(flags)
    raise_recursion_limit()
    try:
        config = load.load(flags.kubeconfig, flags.context)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run(flags, config))
    except (RunnableFailed, KubeError, OSError, ValueError) as error:
        log.error("ended: %s", error)  # noqa: TRY400  # the message is for users: no traceback
        return 1
    return 0


def loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    """uvloop where it is installed: 10 to 20 % less CPU on the hot paths."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    sys.exit(main())
