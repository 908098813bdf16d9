"""What a pod asks for: a table, what holds of every pod, and the word of a real control plane on the same pods."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import PODS, Added, Key, Manifest, Modified, Object, Resource, View
from paddle_operator.kube.pod_requests import as_quantities, pod_requests
from paddle_operator.kube.quantities import Amounts, amounts, times, total
from testbed.control_plane import ControlPlane
from tests.conftest import print_line

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

GPU = "nvidia.com/gpu"
RUNTIME = "resources-test"
OVERHEAD = {"cpu": "250m", "memory": "120Mi"}


def requests(**quantities: object) -> Manifest:
    return {"requests": named(quantities)}


def limits(**quantities: object) -> Manifest:
    return {"limits": named(quantities)}


def named(quantities: Mapping[str, object]) -> Manifest:
    names = {"gpu": GPU, "disk": "ephemeral-storage", "pages": "hugepages-2Mi"}
    return {names.get(name, name): quantity for name, quantity in quantities.items()}


def a_spec(*containers: Manifest, init: tuple[Manifest, ...] = (), **more: object) -> dict[str, Any]:
    """With containers that have these resources; what has `sidecar` in it is an init container that stays."""
    spec: dict[str, Any] = {
        "containers": [
            {"name": f"c{place}", "image": "paddle", "resources": each} for place, each in enumerate(containers)
        ],
        **more,
    }
    if init:
        spec["initContainers"] = [_init_container(f"i{place}", each) for place, each in enumerate(init)]
    return spec


def _init_container(name: str, resources: Manifest) -> Manifest:
    asked = {which: each for which, each in resources.items() if which != "sidecar"}
    stays = {"restartPolicy": "Always"} if "sidecar" in resources else {}
    return {"name": name, "image": "paddle", "resources": asked, **stays}


def sidecar(resources: Manifest) -> Manifest:
    return {**resources, "sidecar": True}


CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "containers add up": (
        a_spec(requests(cpu="500m", memory="1Gi"), requests(cpu=2, memory="512Mi")),
        {"cpu": "2500m", "memory": "1536Mi"},
    ),
    "who asks for nothing has nothing": (a_spec({}, {}), {}),
    "a limit without a request is a request": (
        a_spec(limits(cpu="2", memory="4Gi"), {**requests(cpu="500m"), **limits(cpu="2", memory="1Gi")}),
        {"cpu": "2500m", "memory": "5Gi"},
    ),
    "GPUs stand in limits only": (a_spec(limits(gpu=8), limits(gpu="1")), {GPU: "9"}),
    "a request of nothing is a request": (a_spec({**requests(cpu=0), **limits(cpu=1)}), {"cpu": "0"}),
    "numbers are written in many ways": (
        a_spec(requests(cpu=0.5, memory="1e9"), requests(cpu=".25", memory=1024), requests(cpu="1E0", memory="1Ti")),
        {"cpu": "1750m", "memory": str(10**9 + 1024 + 1024**4)},
    ),
    "less than a thousandth is rounded up, in each container": (
        a_spec(requests(cpu="100u", memory="0.1"), requests(cpu="1.0001", memory="0.1")),
        {"cpu": "1002m", "memory": "200m"},
    ),
    "a step of the start may take more than what follows": (
        a_spec(
            requests(cpu=1, memory="1Gi"),
            requests(cpu=1),
            init=(requests(cpu=3), requests(cpu="500m", memory="8Gi"), limits(gpu=1)),
        ),
        {"cpu": "3", "memory": "8Gi", GPU: "1"},
    ),
    "sidecars stay beside the containers": (
        a_spec(requests(cpu=1), init=(sidecar(requests(cpu="500m")), sidecar(limits(memory="64Mi")))),
        {"cpu": "1500m", "memory": "64Mi"},
    ),
    "a sidecar stays beside the steps that come after it": (
        a_spec(requests(cpu=1), init=(sidecar(requests(cpu="500m")), requests(cpu=2))),
        {"cpu": "2500m"},
    ),
    "a sidecar is not there before it starts": (
        a_spec(requests(cpu=1), init=(requests(cpu=2), sidecar(requests(cpu="500m")))),
        {"cpu": "2"},
    ),
    "overhead comes on top": (
        a_spec(requests(cpu=1), init=(requests(cpu=2),), overhead=OVERHEAD, runtimeClassName=RUNTIME),
        {"cpu": "2250m", "memory": "120Mi"},
    ),
    "a request of the whole pod counts instead": (
        a_spec(
            requests(cpu=1, disk="1Gi"),
            requests(cpu=1, memory="1Gi"),
            resources=requests(cpu=4),
        ),
        {"cpu": "4", "memory": "1Gi", "ephemeral-storage": "1Gi"},
    ),
    "a limit of the whole pod counts where no container asks": (
        a_spec(requests(cpu=1), {}, resources=limits(cpu=4, memory="8Gi")),
        {"cpu": "1", "memory": "8Gi"},
    ),
    "a request of the whole pod wins over its limit": (
        a_spec({}, resources={**requests(cpu=2), **limits(cpu=4, memory="1Gi")}),
        {"cpu": "2", "memory": "1Gi"},
    ),
    "overhead comes on top of the whole pod, too": (
        a_spec({}, resources=requests(cpu=2), overhead=OVERHEAD, runtimeClassName=RUNTIME),
        {"cpu": "2250m", "memory": "120Mi"},
    ),
    "the limit of the whole pod counts of huge pages": (
        a_spec(limits(cpu=1, pages="2Mi"), resources=limits(pages="8Mi", cpu=2)),
        {"cpu": "1", "hugepages-2Mi": "8Mi"},
    ),
    "huge pages of containers": (a_spec(limits(cpu=1, pages="4Mi")), {"cpu": "1", "hugepages-2Mi": "4Mi"}),
}


@pytest.mark.parametrize(("spec", "asked"), CASES.values(), ids=list(CASES))
def test_a_pod_asks_for(spec: Manifest, asked: dict[str, str]) -> None:
    assert as_quantities(pod_requests(spec)) == asked


def test_empty_fields_ask_for_nothing() -> None:
    nothing = {"resources": None, "overhead": None, "initContainers": None}
    assert pod_requests({"containers": [{"resources": None}, {"resources": {"limits": None}}], **nothing}) == {}


def test_an_amount_that_cannot_be_read_is_told_with_its_field() -> None:
    with pytest.raises(
        ValueError, match=r'^initContainers\[0\].resources.limits.cpu: "1 core" is not a quantity: write'
    ):
        pod_requests(a_spec({}, init=(limits(cpu="1 core"),)))


# What holds of every pod

CORES = st.one_of(
    st.integers(0, 3000).map(lambda number: f"{number}m"), st.sampled_from([0.5, 2, "1.5", "1e-1", "100u", "3k"])
)
BYTES = st.one_of(st.integers(0, 4096).map(lambda number: f"{number}Mi"), st.sampled_from([1, "1e6", "1.5Gi", "2G"]))
PLENTY = {"cpu": "100k", "memory": "100Ti"}  # more than all containers together ask for, as a server demands


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    asked: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for name, values in (("cpu", CORES), ("memory", BYTES), ("ephemeral-storage", BYTES)):
        if draw(st.booleans()):
            asked[draw(st.sampled_from(["requests", "limits"]))][name] = draw(values)
        elif draw(st.booleans()):
            asked["requests"][name] = draw(values)
            asked["limits"][name] = PLENTY["cpu" if name == "cpu" else "memory"]
    if draw(st.booleans()):
        asked["limits"][GPU] = draw(st.integers(0, 8))
    return {which: quantities for which, quantities in asked.items() if quantities}


@st.composite
def pod_specs(draw: st.DrawFn) -> dict[str, Any]:
    containers = draw(st.lists(resources(), min_size=1, max_size=3))
    init_containers = [
        sidecar(each) if draw(st.booleans()) else each for each in draw(st.lists(resources(), max_size=4))
    ]
    more: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        more |= {"overhead": OVERHEAD, "runtimeClassName": RUNTIME}
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(["cpu", "memory"]))
        more["resources"] = {draw(st.sampled_from(["requests", "limits"])): {name: PLENTY[name]}}
    return a_spec(*containers, init=tuple(init_containers), **more)


@quick
@given(pod_specs(), st.randoms(use_true_random=False))
def test_the_order_of_containers_does_not_matter(spec: dict[str, Any], chance: Random) -> None:
    mixed = list(spec["containers"])
    chance.shuffle(mixed)
    assert pod_requests(spec | {"containers": mixed}) == pod_requests(spec)


@quick
@given(pod_specs())
def test_what_is_written_of_a_pod_or_of_many_reads_as_the_same(spec: dict[str, Any]) -> None:
    one = pod_requests(spec)
    many = total([one, times(1000, one)])
    for asked in (one, many):
        assert amounts(as_quantities(asked)) == asked
    assert many == times(1001, one)


@quick
@given(pod_specs(), resources())
def test_one_container_more_never_asks_for_less(spec: dict[str, Any], own: dict[str, Any]) -> None:
    spec.pop("resources", None)  # a limit of the whole pod no longer counts where a container asks for a little
    before = pod_requests(spec)
    more = {"name": "more", "image": "paddle", "resources": own}
    for place in ("containers", "initContainers"):
        after = pod_requests(spec | {place: [*spec.get(place, []), more]})
        assert all(after[name] >= value for name, value in before.items())


# The word of a real control plane: its quotas count what pods ask for


class QuotaSpec(View, frozen=True):
    hard: dict[str, str] = msgspec.field(default_factory=dict)


class QuotaStatus(View, frozen=True):
    hard: dict[str, str] = msgspec.field(default_factory=dict)
    used: dict[str, str] = msgspec.field(default_factory=dict)


class Quota(Object, frozen=True):
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


QUOTAS = Resource("api/v1", "resourcequotas", Quota)
RUNTIME_CLASSES = Resource("apis/node.k8s.io/v1", "runtimeclasses", Object, namespaced=False)
COUNTED = ("cpu", "memory", "ephemeral-storage", GPU, "hugepages-2Mi")


async def counted(control_plane: ControlPlane, client: Client, spec: Manifest) -> Amounts:
    """What a quota says that a pod with this spec uses."""
    namespace = await control_plane.create_namespace("resources")
    try:
        metadata = {"namespace": namespace, "name": "it"}
        await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        hard = {"pods": "1", **{f"requests.{name}": "1P" for name in COUNTED}}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
        # Only now: where there is a quota, a pod is refused if one of its containers asks for nothing.
        made = await client.create(QUOTAS, quota)
        used = await first_use(client, made)
        return {name: used[f"requests.{name}"] for name in COUNTED}
    finally:
        await control_plane.delete_namespace(namespace)


async def first_use(client: Client, quota: Quota) -> Amounts:
    """The controller may look at the quota before it has heard of the pod: then a new limit makes it look again."""
    asked = 1
    since = quota.metadata.resource_version
    async for changes in client.watch(QUOTAS, Scope(quota.key.namespace), since=since):
        for change in changes:
            assert isinstance(change, Added | Modified), change
            status = change.object.status
            if status.used.get("pods") == "1":
                return amounts(status.used)
            if status.hard.get("pods") == str(asked):
                asked += 1
                await client.merge(QUOTAS, quota.key, {"spec": {"hard": {"pods": str(asked)}}})
    raise AssertionError("the server has ended the watch")


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.connection()) as client:
        overhead = {"metadata": {"name": RUNTIME}, "handler": RUNTIME, "overhead": {"podFixed": OVERHEAD}}
        await client.create(RUNTIME_CLASSES, {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **overhead})
        yield client
        await client.delete(RUNTIME_CLASSES, Key("", RUNTIME))


async def assert_counted_as_we_do(control_plane: ControlPlane, client: Client, specs: Sequence[Manifest]) -> None:
    theirs = await asyncio.gather(*(counted(control_plane, client, spec) for spec in specs))
    for spec, used in zip(specs, theirs, strict=True):
        ours = pod_requests(spec)
        assert {name: ours.get(name, Fraction(0)) for name in COUNTED} == used, spec


async def test_a_real_quota_agrees_with_the_table(control_plane: ControlPlane, client: Client) -> None:
    await assert_counted_as_we_do(control_plane, client, [spec for spec, _ in CASES.values()])


async def test_a_real_quota_agrees_on_any_pod(
    control_plane: ControlPlane, client: Client, pytestconfig: pytest.Config
) -> None:
    number = pytestconfig.getoption("randomly_seed")
    print_line(pytestconfig, f"pods for a quota: seed {number}; the same again: -p randomly --randomly-seed={number}")
    specs: list[dict[str, Any]] = []

    @seed(number)
    @settings(
        max_examples=20, deadline=None, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
    )
    @given(pod_specs())
    def gather(spec: dict[str, Any]) -> None:
        specs.append(spec)

    gather()
    await assert_counted_as_we_do(control_plane, client, specs)
