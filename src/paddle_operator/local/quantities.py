"""Kubernetes' amounts as numbers: `500m` cores, `1Gi` bytes."""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache

_BINARY = {suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FACTORS = _BINARY | {suffix: Decimal(10) ** power for suffix, power in _DECIMAL.items()}

Amounts = dict[str, Decimal]  # by resource: cpu, memory, nvidia.com/gpu


@lru_cache(maxsize=1024)
def amount(quantity: str | int | float) -> Decimal:
    """Raises ValueError with a sentence."""
    text = str(quantity).strip()
    suffix = next((each for each in (text[-2:], text[-1:]) if each in _FACTORS), "")
    try:
        number = Decimal(text.removesuffix(suffix))
        if not number.is_finite():
            raise ValueError
    except (InvalidOperation, ValueError):
        raise ValueError(f'"{quantity}" is not an amount: write a number such as 2, 500m, 1.5 or 512Mi') from None
    return number * _FACTORS.get(suffix, 1)


def amounts(quantities: Mapping[str, str | int | float]) -> Amounts:
    return {resource: amount(quantity) for resource, quantity in quantities.items()}


def total(parts: Iterable[Amounts]) -> Amounts:
    summed: Amounts = {}
    for part in parts:
        for resource, each in part.items():
            summed[resource] = summed.get(resource, Decimal(0)) + each
    return summed


def larger(one: Amounts, other: Amounts) -> Amounts:
    """Of each resource the larger amount."""
    zero = Decimal(0)
    return {resource: max(one.get(resource, zero), other.get(resource, zero)) for resource in one | other}


def in_units(value: Decimal, divisor: str | int | float) -> str:
    """How many divisors it is, rounded up to a whole number as the downward API does; a divisor of 0 is 1."""
    unit = amount(divisor) or Decimal(1)
    return str(int((value / unit).to_integral_value(ROUND_CEILING)))
