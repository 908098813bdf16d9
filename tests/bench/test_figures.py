"""Every figure can be measured: a few pods on a real API server, and no stopwatch."""

from bench.bed import Bed
from bench.figures import FIGURES, NAMESPACES, Samples, Size
from bench.ranges import ranges
from testbed.control_plane import ControlPlane
from testbed.progress import Progress

FEW = Size(created=20, slices=2, watched=10, patches=2, bursts=2, made=20, synced=40, cached=60)


async def test_the_figures_are_those_of_the_range_file(control_plane: ControlPlane) -> None:
    bed = await Bed.quiet(control_plane, NAMESPACES, Progress())
    samples: Samples = {}
    for figure, _ in FIGURES.values():
        samples |= await figure(bed, FEW, 1)
    assert samples.keys() == ranges().keys()
    assert {name for name, seen in samples.items() if len(seen) != 1} == set()
