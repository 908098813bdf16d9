"""The range file declares which figures are judged, and by which limit."""

from pathlib import Path

import msgspec
import pytest

from bench.ranges import Range, ranges


def test_every_limit_has_its_measurement() -> None:
    assert [name for name, each in ranges().items() if each.limit is not None and each.measured is None] == []


def test_limit_is_inclusive() -> None:
    ceiling, floor = Range("cpu", "s", at_most=2), Range("rate", "/s", at_least=90)
    assert not ceiling.is_missed(2.0)
    assert ceiling.is_missed(2.01)
    assert not floor.is_missed(90.0)
    assert floor.is_missed(89.9)


def test_figure_without_a_limit_is_never_missed() -> None:
    figure = Range("peak", "MB")
    assert not figure.is_missed(1e9)
    assert figure.share(1e9) is None


@pytest.mark.parametrize(
    "text",
    [
        '[a]\nwhat = "a"\nunit = "s"\nat_most = 1\nat_least = 1',
        '[a]\nwhat = "a"\nunit = "s"\nat_most = 0',
        '[a]\nwhat = "a"\nunit = "s"\nat_mots = 1',
    ],
)
def test_invalid_range_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ranges.toml"
    file.write_text(text)
    with pytest.raises(msgspec.ValidationError):
        ranges(file)
