"""What the command line sets for the controllers of one namespace, of every kind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddle_operator.controllers.host_ports import PortBlocks
from paddle_operator.kube.client import Client
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.reconciler import Reconciler

HOST_PORTS = range(35000, 65000)


@dataclass(frozen=True)
class Settings:
    namespace: str = ""  # empty is all of them
    several_namespaces: bool = False  # the controller's name in metrics and logs then includes the namespace
    etcd: str = ""
    scheduling: str = ""  # volcano, where it schedules whole jobs
    ports: PortBlocks | None = None  # shared between namespaces, since nodes have none

    def controller_name(self, kind: str) -> str:
        return f"{kind.lower()}-{self.namespace}" if self.several_namespaces else kind.lower()

    def host_ports(self) -> PortBlocks:
        return self.ports or PortBlocks.of(HOST_PORTS)


ReconcilerType = Callable[[Client, Recorder, Settings], Reconciler[Any, Any]]
"""The class of a reconciler, called with the settings of one namespace."""
