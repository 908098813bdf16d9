"""Amounts are read and written as Kubernetes does, exactly."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.kube.quantities import (
    Amounts,
    amount,
    binary,
    decimal,
    effective_requests,
    in_units,
    larger,
    times,
    total,
)

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

NUMBERS = st.decimals(min_value=-(10**12), max_value=10**15, places=3, allow_nan=False, allow_infinity=False)
SUFFIXES = st.sampled_from(
    ["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+6"]
)
MAX_UNTHROTTLED_CHANGES = st.integers(0, 4).map(Fraction)
LISTS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), MAX_UNTHROTTLED_CHANGES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("500m", "1/2"),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),
        ("2k", 2000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1e-3", "1/1000"),
        ("100n", "1/10000000"),
        (".5", "1/2"),
        ("5.", 5),
        ("+1", 1),
        ("-1", -1),
        ("1Ti", 1024**4),
        (3, 3),
        (0.5, "1/2"),
        (0.1, "1/10"),
        (1e21, 10**21),
        ("0", 0),
        ("12345678901234567890.123456789Ei", Fraction("12345678901234567890.123456789") * 1024**6),
    ],
)
def test_amounts_are_read_as_kubernetes_writes_them(text: str | float, value: str | int) -> None:
    assert amount(text) == Fraction(value)


@pytest.mark.parametrize(
    "text", ["", "one", "1Gib", "NaN", "inf", "1 Gi Gi", " 1", "1_000", "1e3Ki", "0x1", "1e999999999", "٣", "1/2"]
)
def test_what_is_no_amount_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity: write a number such as"):
        amount(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5/2", "2500m"),
        ("2", "2"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1/10000000", "100n"),
        ("1/3", "333333334n"),
        ("-1/2", "-500m"),
        ("0", "0"),
        ("1" + "0" * 21, "1000E"),
    ],
)
def test_decimal_uses_the_largest_exact_suffix(value: str, text: str) -> None:
    assert decimal(Fraction(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4 * 1024**3, "4Gi"),
        (1536 * 1024**2, "1536Mi"),
        (1000000001, "1000000001"),
        (512, "512"),
        (1000, "1k"),
        (Fraction(2049, 2), "1024500m"),
        (2048 * 1024**6, "2048Ei"),
        (0, "0"),
    ],
)
def test_binary_uses_binary_suffixes_if_exact(value: int | Fraction, text: str) -> None:
    assert binary(Fraction(value)) == text


@quick
@given(NUMBERS, SUFFIXES)
def test_formatted_quantity_parses_to_itself(number: object, suffix: str) -> None:
    value = amount(f"{number}{suffix}")
    for write in (binary, decimal):
        assert amount(write(value)) == value
        assert write(amount(write(value))) == write(value)


def test_a_share_is_rounded_up() -> None:
    assert in_units(amount("1025Ki"), "1Mi") == "2"


@quick
@given(st.lists(LISTS, max_size=4), st.randoms(use_true_random=False))
def test_total_is_commutative_and_times_is_a_sum(several: list[Amounts], chance: Random) -> None:
    mixed = list(several)
    chance.shuffle(mixed)
    assert total(mixed) == total(several)
    for each in several:
        assert times(3, each) == total([each, each, each])
        assert larger(each, total(several)) == total(several)


@quick
@given(st.lists(LISTS, max_size=3), st.lists(st.tuples(LISTS, st.booleans()), max_size=5))
def test_effective_requests_equal_a_simulated_maximum(
    containers: list[Amounts], init_containers: list[tuple[Amounts, bool]]
) -> None:
    moments: list[list[Amounts]] = []
    alive: list[Amounts] = []
    for own, stays in init_containers:
        alive.append(own)
        moments.append(list(alive))
        if not stays:
            alive.pop()
    moments.append(alive + containers)
    names = {name for own in [*containers, *(own for own, _ in init_containers)] for name in own}
    worst = {name: max(sum(each.get(name, Fraction(0)) for each in moment) for moment in moments) for name in names}
    assert effective_requests(containers, init_containers) == worst
