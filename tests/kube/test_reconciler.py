"""The reconciler: what it enqueues with which priority and delay, and the order of status and writes."""

from functools import partial
from typing import Any, cast

import msgspec
import pytest

from paddle_operator.kube.client import Client
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.executor import OwnerState
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Manifest, Meta, Object, OwnerReference, PrimaryView, Resource
from paddle_operator.kube.reconciler import (
    Debounce,
    OwnedObjects,
    OwnedView,
    Reconciler,
    ReconcilerSettings,
)
from paddle_operator.kube.writes import Create, EventIntent, Plan, StatusOrder
from testbed.clock import FakeClock

TOYS = Resource("apis/toys.example.org/v1", "toys", Object)
KEY = Key("default", "toy")


class Toy(PrimaryView, frozen=True):
    spec: str = ""
    status: dict[str, Any] = {}  # noqa: RUF012  # msgspec copies it


class RequestLog:
    """A client and a recorder that note what is written, in order."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    async def emit(self, _regarding: object, reason: str, _note: str, *, warning: bool) -> None:
        self.requests.append(f"event {reason}")

    async def merge(self, kind: Resource[Any], _key: Key, _change: Manifest, *, subresource: str = "") -> Object:
        self.requests.append(f"patch {kind}/{subresource}")
        return Object(Meta(name="toy", namespace="default", uid="u1", resource_version="1"))

    async def create(self, kind: Resource[Any], manifest: Manifest) -> Object:
        self.requests.append(f"create {kind}")
        return make_child(manifest["metadata"]["name"])


def make_child(name: str, version: int = 5) -> Object:
    references = (OwnerReference("Toy", "toy", "u1", controller=True),)
    return Object(
        Meta(name=name, namespace="default", uid=name, resource_version=str(version), owner_references=references)
    )


class Toys(Reconciler[Toy, dict[str, Any]]):
    desired: Plan[dict[str, Any]] = Plan({})

    def __init__(self, requests: RequestLog, clock: FakeClock) -> None:
        client = cast("Client", requests)
        self.toys = Informer(client, TOYS, project=lambda stored: Toy(stored.metadata))
        self.children = Informer(client, CONFIG_MAPS, project=OwnedView.of)
        settings = ReconcilerSettings("toys", debounce=Debounce(per_child_seconds=1.0, max_seconds=60.0))
        super().__init__(client, cast("Recorder", requests), "Toy", self.toys, [self.children], settings, clock=clock)

    def plan(self, owner: Toy, children: OwnedObjects, state: OwnerState) -> Plan[dict[str, Any]]:
        return self.desired

    def add_toy(self, version: int = 1, generation: int = 1) -> None:
        meta = Meta(name="toy", namespace="default", uid="u1", resource_version=str(version), generation=generation)
        self.toys.store.put(Toy(meta))


@pytest.fixture
def requests() -> RequestLog:
    return RequestLog()


@pytest.fixture
def toys(requests: RequestLog) -> Toys:
    return Toys(requests, FakeClock())


def desired(order: StatusOrder) -> Plan[dict[str, Any]]:
    create = Create(CONFIG_MAPS, Key("default", "child"), partial(dict, metadata={"name": "child"}))
    return Plan({"phase": "Ready"}, ((create,),), (EventIntent("Changed", "it changed"),), status_order=order)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (StatusOrder.FIRST, ["event Changed", "patch toys/status", "create configmaps"]),
        (StatusOrder.DEFERRED, ["create configmaps"]),
    ],
)
async def test_status_order(toys: Toys, requests: RequestLog, order: StatusOrder, expected: list[str]) -> None:
    toys.add_toy()
    toys.desired = desired(order)
    await toys.reconcile(KEY)
    assert requests.requests == expected


async def test_deleted_owner_is_not_reconciled(toys: Toys, requests: RequestLog) -> None:
    toys.desired = desired(StatusOrder.FIRST)
    assert await toys.reconcile(KEY) is None
    assert requests.requests == []


async def test_child_events_are_debounced_by_the_number_of_children(toys: Toys) -> None:
    toys.add_toy()
    await toys.queue.take()
    toys.queue.done(KEY)
    for version, name in enumerate("abc", start=5):
        toys.children.observe_write(make_child(name, version))
    assert len(toys.queue) == 0
    await cast("FakeClock", toys.clock).advance(1.0)
    assert len(toys.queue) == 1


async def test_own_status_write_has_low_priority(toys: Toys) -> None:
    """A new generation is a user's request, any other change is an echo."""
    toys.add_toy()
    await toys.queue.take()
    toys.queue.done(KEY)
    toys.add_toy(version=2)
    toys.toys.store.put(Toy(Meta(name="other", namespace="default", uid="u2", resource_version="3")))
    assert await toys.queue.take() == Key("default", "other")


async def test_throttled_owners_extend_the_status_interval(toys: Toys) -> None:
    toys.desired = Plan({}, status_order=StatusOrder.THROTTLED)
    before = toys.status_interval
    for number in range(3):
        meta = Meta(name=f"toy-{number}", namespace="default", uid=f"u{number}", resource_version="1")
        toys.toys.store.put(Toy(meta))
        await toys.reconcile(meta.key)
    assert toys.status_interval == 3 * before


def test_owned_view_has_what_the_cache_needs() -> None:
    view = OwnedView.of(make_child("a"))
    assert msgspec.structs.astuple(view) == (Key("default", "a"), "a", 5, "u1", False)
