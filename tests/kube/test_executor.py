"""The executor: order of waves, concurrency, refusals with back-off, merge patches."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import AlreadyExists, Forbidden, NotFound, Status
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.executor import Executor, WriteLimits, merge_patch
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import (
    CONFIG_MAPS,
    PODS,
    Key,
    Manifest,
    Meta,
    Object,
    OwnerReference,
    PrimaryView,
    Resource,
)
from paddle_operator.kube.reconciler import OwnedView
from paddle_operator.kube.writes import Create, Plan
from paddle_operator.local.apiserver.patch.json_patch import apply_merge_patch
from testbed.clock import FakeClock

TOYS = Resource("apis/toys.example.org/v1", "toys", Object)
OWNER = PrimaryView(Meta(name="toy", namespace="default", uid="u1", resource_version="1", generation=1))


class FakeClient:
    """Creates objects, or raises what a name is to raise; counts the requests in flight."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.existing: dict[str, str] = {}  # name -> UID of its owner
        self.created: list[str] = []
        self.in_flight = self.max_in_flight = 0

    async def create(self, kind: Resource[Any], manifest: Manifest) -> Object:
        name = manifest["metadata"]["name"]
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if name in self.errors:
            raise self.errors[name]
        if name in self.existing:
            raise AlreadyExists(f"create {kind}", Status(409, "AlreadyExists", "it exists"))
        self.created.append(name)
        return make_object(name, OWNER.uid)

    async def get(self, kind: Resource[Any], key: Key) -> Object:
        if key.name not in self.existing:
            raise NotFound(f"get {kind}", Status(404, "NotFound", "not found"))
        return make_object(key.name, self.existing[key.name])


def make_object(name: str, owner: str) -> Object:
    references = (OwnerReference("Toy", "toy", owner, controller=True),)
    return Object(Meta(name=name, namespace="default", uid=name, resource_version="2", owner_references=references))


@dataclass
class Harness:
    client: FakeClient
    clock: FakeClock
    requeued: list[Key]
    executor: Executor[Manifest]

    async def apply(self, *waves: list[str], kind: Resource[Any] = CONFIG_MAPS, required: str = "") -> None:
        names = ((kind, Key("default", required)),) if required else ()
        creates = tuple(tuple(make_create(kind, name) for name in wave) for wave in waves)
        await self.executor.apply(OWNER, Plan({}, creates, required_names=names))

    def refusals(self) -> list[tuple[str, str]]:
        return [(each.key.name, each.reason) for each in self.executor.begin(OWNER).refusals.values()]


def make_create(kind: Resource[Any], name: str) -> Create:
    return Create(kind, Key("default", name), partial(dict, metadata={"name": name}))


@pytest.fixture
def harness() -> Harness:
    client, clock, requeued = FakeClient(), FakeClock(), list[Key]()
    as_client = cast("Client", client)
    informers: list[Informer[Any, Any]] = [
        Informer(as_client, TOYS),
        *(Informer(as_client, kind, project=OwnedView.of) for kind in (CONFIG_MAPS, PODS)),
    ]
    limits = WriteLimits(max_writes_per_owner=3)
    recorder = cast("Recorder", None)
    executor: Executor[Manifest] = Executor(
        as_client, recorder, "Toy", informers, requeued.append, clock=clock, limits=limits
    )
    executor.begin(OWNER)
    return Harness(client, clock, requeued, executor)


async def test_waves_are_applied_in_order_with_bounded_concurrency(harness: Harness) -> None:
    first, second = [f"a{number}" for number in range(9)], [f"b{number}" for number in range(9)]
    await harness.apply(first, second)
    assert sorted(harness.client.created[:9]) == first
    assert sorted(harness.client.created[9:]) == second
    assert harness.client.max_in_flight == 3


async def test_refused_kind_is_not_created_further(harness: Harness) -> None:
    quota = Status(403, "Forbidden", "exceeded quota: small")
    harness.client.errors = {f"a{number}": Forbidden("create", quota) for number in range(9)}
    await harness.apply([f"a{number}" for number in range(9)])
    assert harness.refusals() == [(f"a{number}", "QuotaExceeded") for number in range(3)]
    assert harness.requeued == [OWNER.key] * 3


async def test_refusal_backs_off_and_is_cleared_by_success(harness: Harness) -> None:
    harness.client.errors["a"] = Forbidden("create", Status(403, "Forbidden", "no"))
    for wait in (1, 2, 4):
        await harness.apply(["a"])
        (refusal,) = harness.executor.begin(OWNER).refusals.values()
        assert refusal.retry_at - harness.clock.now() == timedelta(seconds=wait)
    harness.client.errors.clear()
    await harness.apply(["a"])
    assert harness.refusals() == []


async def test_name_of_another_owner_is_a_conflict(harness: Harness) -> None:
    harness.client.existing = {"theirs": "u2", "ours": OWNER.uid}
    await harness.apply(["theirs", "ours"])
    assert harness.refusals() == [("theirs", "NameConflict")]


@pytest.mark.parametrize(("existing", "created"), [({}, ["a"]), ({"toy": "u1"}, ["a"]), ({"toy": "u2"}, [])])
async def test_required_name_must_be_available(harness: Harness, existing: dict[str, str], created: list[str]) -> None:
    harness.client.existing = existing
    await harness.apply(["a"], required="toy")
    assert harness.client.created == created


async def test_new_generation_resets_refusals(harness: Harness) -> None:
    harness.client.errors["a"] = Forbidden("create", Status(403, "Forbidden", "no"))
    await harness.apply(["a"])
    changed = PrimaryView(Meta(name="toy", namespace="default", uid="u1", resource_version="9", generation=2))
    assert not harness.executor.begin(changed).refusals


VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(MAPS, MAPS)
def test_applied_merge_patch_gives_the_new_value(old: dict[str, Any], new: dict[str, Any]) -> None:
    change = merge_patch(old, new)
    assert apply_merge_patch(old, change) == new
    assert bool(change) == (old != new)
