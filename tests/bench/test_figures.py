"""Every figure can be measured: a few pods on a real API server; no value is judged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.cluster import BenchCluster
from bench.figures import FIGURES, NAMESPACES, Samples, Size
from bench.jobs import Shape
from bench.lifecycle import finished_jobs, restart
from bench.loads import LOADS, NAMESPACE, behind, load
from bench.local import local
from bench.ranges import ranges
from testbed.control_plane import ControlPlane
from testbed.progress import Progress

pytestmark = pytest.mark.long

SMALL = Size(created=20, slices=2, watched=10, patches=2, bursts=2, originals=20, synced=40, cached=60)
LOAD_PREFIXES = ("load_", "behind_")
LOCAL_PREFIX = "local_"
LIFECYCLE_PREFIXES = ("restart_", "finished_")
LONG_PREFIXES = ("failover_", "soak_")  # minutes each; run by hand with --rounds 1 --quick
MEASURED_ELSEWHERE = (*LOAD_PREFIXES, LOCAL_PREFIX, *LIFECYCLE_PREFIXES, *LONG_PREFIXES)


async def test_runtime_figures_match_the_range_file(control_plane: ControlPlane) -> None:
    cluster = await BenchCluster.create_quiet(control_plane, NAMESPACES, Progress())
    samples: Samples = {}
    for figure, _ in FIGURES.values():
        samples |= await figure(cluster, SMALL, 1)
    assert samples.keys() == {name for name in ranges() if not name.startswith(MEASURED_ELSEWHERE)}
    assert {name for name, seen in samples.items() if len(seen) != 1} == set()


async def test_local_figures_match_the_range_file() -> None:
    samples = await local(Progress(), 1)
    assert samples.keys() == {name for name in ranges() if name.startswith(LOCAL_PREFIX)}
    assert {name for name, seen in samples.items() if len(seen) != 1} == set()


async def test_load_figures_match_the_range_file(control_plane: ControlPlane) -> None:
    @asynccontextmanager
    async def new_cluster() -> AsyncIterator[BenchCluster]:
        yield await BenchCluster.create_live(control_plane, (NAMESPACE,), Progress())

    found = await load(new_cluster, "few", Shape(jobs=2, workers=2, servers=1), 1)
    figures = {name.removeprefix("load_few_") for name in found}
    expected = {f"load_{name}_{figure}" for name in LOADS for figure in figures}
    small = await load(new_cluster, "500x2", Shape(jobs=2, workers=1, servers=1), 1)  # it has a second ceiling
    assert small.keys() - expected == {"load_500x2_submitted_ceiling", "load_500x2_submitted_share"}
    samples = small | await behind(new_cluster, Shape(jobs=1, workers=3), 1)
    assert expected | samples.keys() == {name for name in ranges() if name.startswith(LOAD_PREFIXES)}
    assert found["load_few_writes_per_pod"] == [found["load_few_writes_per_job"][0] / 3]
    assert {name for name, seen in (found | samples).items() if len(seen) != 1 or seen[0] <= 0} == set()


async def test_lifecycle_figures_match_the_range_file(control_plane: ControlPlane) -> None:
    @asynccontextmanager
    async def new_cluster() -> AsyncIterator[BenchCluster]:
        yield await BenchCluster.create_live(control_plane, (NAMESPACE,), Progress())

    samples = await restart(new_cluster, Shape(jobs=1, workers=3), 1, runs_seconds=15.0) | await finished_jobs(
        new_cluster, 3, 1
    )
    assert samples.keys() == {name for name in ranges() if name.startswith(LIFECYCLE_PREFIXES)}
    assert samples["restart_delete_requests"] == [1.0]
