"""Which kinds does the operator run? One line a kind, for the manager and for the local cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paddle_operator.api.definition import KindDefinition
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.controllers.paddlejob import PaddleJobs
from paddle_operator.controllers.settings import ReconcilerType, Settings
from paddle_operator.kube.client import Client
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.reconciler import Reconciler


@dataclass(frozen=True)
class ControlledKind:
    """A kind and the reconciler that runs it."""

    definition: KindDefinition[Any, Any]
    reconciler: ReconcilerType


CONTROLLED_KINDS = (ControlledKind(PADDLE_JOB, PaddleJobs),)


def build_reconcilers(
    client: Client,
    recorder: Recorder,
    settings: Sequence[Settings],
    kinds: Sequence[ControlledKind] = CONTROLLED_KINDS,
) -> list[Reconciler[Any, Any]]:
    """A reconciler for each kind in each namespace."""
    return [kind.reconciler(client, recorder, each) for kind in kinds for each in settings]
