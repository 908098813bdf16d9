"""Greeting: the smallest kind over all layers. It writes its text into a ConfigMap. The test counts these lines."""

from datetime import datetime
from functools import partial

from paddle_operator.api.decoding import InvalidSpec, read_spec, read_status
from paddle_operator.api.definition import KindDefinition, PrinterColumn
from paddle_operator.api.meta import Condition, Fields
from paddle_operator.api.rules import Rule, between
from paddle_operator.controllers.kinds import ControlledKind
from paddle_operator.controllers.settings import Settings
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.conditions import condition_status, event_on_transition, with_conditions
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.executor import OwnerState
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, Manifest, PrimaryView, Resource, StoredObject
from paddle_operator.kube.reconciler import (
    OwnedObjects,
    OwnedView,
    Reconciler,
    ReconcilerSettings,
)
from paddle_operator.kube.writes import Create, Plan

# api


class GreetingSpec(Fields, frozen=True):
    """What to write."""

    recipient: str
    """Who is greeted."""
    copies: int = 1
    """How many times, from 1 to 9."""


class GreetingStatus(Fields, frozen=True):
    """What was written."""

    conditions: tuple[Condition, ...] = ()
    """Ready: the ConfigMap exists."""


COPIES: Rule[GreetingSpec] = between("spec.copies", 1, 9, "must be from 1 to 9")
GREETING = KindDefinition(
    group="toys.example.org",
    version="v1",
    kind="Greeting",
    plural="greetings",
    description="A text in a ConfigMap.",
    spec=GreetingSpec,
    status=GreetingStatus,
    columns=(PrinterColumn("Ready", "string", ".status.conditions[0].status"),),
    rules=(COPIES,),
)

# plan


class Greeting(PrimaryView, frozen=True):
    spec: GreetingSpec | None
    status: GreetingStatus
    problems: tuple[str, ...] = ()


def config_map(greeting: Greeting, spec: GreetingSpec) -> Manifest:
    owner = {"apiVersion": GREETING.api_version, "kind": GREETING.kind, "name": greeting.key.name, "uid": greeting.uid}
    metadata = {**greeting.key._asdict(), "ownerReferences": [{**owner, "controller": True}]}
    data = {"text": f"Hello {spec.recipient}! " * spec.copies}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def plan(greeting: Greeting, config_maps: tuple[OwnedView, ...], now: datetime) -> Plan[GreetingStatus]:
    if greeting.spec is None:
        holds, reason, message = False, "SpecInvalid", "; ".join(greeting.problems)
    elif config_maps:
        holds, reason, message = True, "Written", f"ConfigMap {config_maps[0].key.name} exists"
    else:
        holds, reason, message = False, "Writing", f"ConfigMap {greeting.key.name} does not exist"
    ready = Condition("Ready", condition_status(holds), reason, message, greeting.metadata.generation, now)
    before = greeting.status.conditions
    status = GreetingStatus(with_conditions(before, ready))
    if greeting.spec is None or config_maps:
        return Plan(status, (), event_on_transition(before, ready, warning=greeting.spec is None))
    create = Create(CONFIG_MAPS, greeting.key, partial(config_map, greeting, greeting.spec))
    return Plan(status, ((create,),), event_on_transition(before, ready, warning=False))


# controllers

GREETINGS = Resource(f"apis/{GREETING.api_version}", GREETING.plural, StoredObject)


def greeting_view(stored: StoredObject) -> Greeting:
    status = read_status(GREETING, bytes(stored.status))
    try:
        return Greeting(stored.metadata, read_spec(GREETING, bytes(stored.spec)), status)
    except InvalidSpec as error:
        return Greeting(stored.metadata, None, status, error.problems)


class Greetings(Reconciler[Greeting, GreetingStatus]):
    def __init__(self, client: Client, recorder: Recorder, settings: Settings) -> None:
        scope, name = Scope(settings.namespace), settings.controller_name(GREETING.kind)
        greetings = Informer(client, GREETINGS, scope, project=greeting_view)
        self._config_maps = Informer(client, CONFIG_MAPS, scope, project=OwnedView.of)
        super().__init__(client, recorder, GREETING.kind, greetings, [self._config_maps], ReconcilerSettings(name))

    def plan(self, owner: Greeting, children: OwnedObjects, state: OwnerState) -> Plan[GreetingStatus]:
        return plan(owner, children.of(self._config_maps), self.clock.now())


TOY = ControlledKind(GREETING, Greetings)
