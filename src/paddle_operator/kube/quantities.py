"""Kubernetes quantities as exact numbers and back (`500m` cores, `1Gi` bytes), and sums of them."""

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

Quantity = str | int | float  # as written in a manifest
Amounts = dict[str, Fraction]  # by resource: cpu, memory, nvidia.com/gpu

# Bounded digits: an endless exponent would take endless CPU.
_PATTERN = re.compile(
    r"([+-]?(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100}))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_FACTORS = {suffix: Fraction(1024) ** power for power, suffix in enumerate(_BINARY)} | {
    suffix: Fraction(10) ** power for power, suffix in _DECIMAL.items()
}
NANO, MILLI = Fraction(1, 10**9), Fraction(1, 1000)
_ZERO = Fraction(0)


# Reading


@lru_cache(maxsize=1024)  # the pods of a job have the same few amounts
def amount(quantity: Quantity) -> Fraction:
    """Raises ValueError with a message for users."""
    return parts(quantity)[0]


def parts(quantity: Quantity) -> tuple[Fraction, str]:
    """The number, and the suffix it was written with. Raises ValueError with a message for users."""
    found = _PATTERN.fullmatch(str(quantity))
    if found is None:
        raise ValueError(f'"{quantity}" is not a quantity: write a number such as 2, 500m, 1.5 or 512Mi')
    suffix = found[2] or ""
    factor = _FACTORS.get(suffix)
    return Fraction(found[1]) * (Fraction(10) ** int(suffix[1:]) if factor is None else factor), suffix


def amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {resource: amount(quantity) for resource, quantity in quantities.items()}


def rounded(value: Fraction, step: Fraction) -> Fraction:
    """To a multiple of the step, away from zero, so that a small request does not become 0."""
    steps = value / step
    return (math.ceil(steps) if steps > 0 else math.floor(steps)) * step


# Formatting: the canonical form, with the largest suffix that leaves no fraction


def decimal(value: Fraction) -> str:
    """Cores and counts: `2500m`, `8`, `1k`. Fractions below a billionth are rounded up, as Kubernetes does."""
    number, exponent = thousands(value)
    return f"{number}{_DECIMAL[exponent]}"


def binary(value: Fraction) -> str:
    """Bytes: `4Gi`, or `1000000001` if no suffix fits; small values and fractions are written as decimals."""
    if abs(value) < 1024 or value.denominator != 1:
        return decimal(value)
    number, power = int(value), 0
    while number % 1024 == 0 and power + 1 < len(_BINARY):
        number //= 1024
        power += 1
    return f"{number}{_BINARY[power]}"


def thousands(value: Fraction) -> tuple[int, int]:
    """An integer and its exponent of ten, a multiple of three from -9 on."""
    number, exponent = int(rounded(value, NANO) / NANO), -9
    while number and number % 1000 == 0 and exponent < 18:
        number //= 1000
        exponent += 3
    return (number, exponent) if number else (0, 0)


def is_binary(suffix: str) -> bool:
    return suffix in _BINARY[1:]


def in_units(value: Fraction, divisor: Quantity) -> str:
    """The value in multiples of the divisor, rounded up as the downward API does; a divisor of 0 means 1."""
    return str(math.ceil(value / (amount(divisor) or 1)))


# Sums


def total(several: Iterable[Amounts]) -> Amounts:
    summed: Amounts = {}
    for each in several:
        for resource, value in each.items():
            summed[resource] = summed[resource] + value if resource in summed else value
    return summed


def times(count: int, each: Amounts) -> Amounts:
    return {resource: count * value for resource, value in each.items()}


def larger(one: Amounts, other: Amounts) -> Amounts:
    """The larger amount of each resource."""
    return {resource: max(one.get(resource, _ZERO), other.get(resource, _ZERO)) for resource in one | other}


def effective_requests(containers: Iterable[Amounts], init_containers: Iterable[tuple[Amounts, bool]]) -> Amounts:
    """The most that a pod's containers use of each resource at one time.

    Init containers run one after the other; a sidecar (true) keeps running beside those after it.
    """
    sidecars: Amounts = {}
    most: Amounts = {}
    for own, is_sidecar in init_containers:
        now = total((sidecars, own))
        most = larger(most, now)
        if is_sidecar:
            sidecars = now
    running = total((sidecars, *containers))
    return larger(most, running) if most else running
