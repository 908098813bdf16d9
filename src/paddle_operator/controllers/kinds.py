"""Which kinds does the operator run? One line a kind, for the manager and for the local cluster."""

from collections.abc import Sequence
from typing import Any

from paddle_operator.controllers.paddlejob import PaddleJobs
from paddle_operator.controllers.settings import ReconcilerType, Settings
from paddle_operator.kube.client import Client
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.reconciler import Reconciler

RECONCILERS: tuple[ReconcilerType, ...] = (PaddleJobs,)


def build_reconcilers(
    client: Client,
    recorder: Recorder,
    settings: Sequence[Settings],
    types: Sequence[ReconcilerType] = RECONCILERS,
) -> list[Reconciler[Any, Any]]:
    """A reconciler for each kind in each namespace."""
    return [build(client, recorder, each) for build in types for each in settings]
