"""In which form are quantities and times stored? `0.5` becomes `500m`; times are in UTC, as Go formats them."""

import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from paddle_operator.kube.quantities import MILLI, NANO, Quantity, binary, decimal, is_binary, parts, rounded, thousands

QUANTITY_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
MAX_QUANTITY = Fraction(2**63 - 1)

MICRO_TIME_SUFFIX = re.compile(r"\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})$")
RFC_3339_PATTERN = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def quantity(written: Quantity) -> str:
    """Without a fraction, with the largest suffix that avoids one, in the suffix family of the input.

    Raises ValueError with kube-apiserver's message.
    """
    return canonical_quantity(written, NANO)


def resource(written: Quantity) -> str:
    """A resource of a container or node: its smallest unit is 1/1000, smaller amounts are rounded up."""
    return canonical_quantity(written, MILLI)


@lru_cache(maxsize=1024)  # all pods of a job have the same few quantities
def canonical_quantity(written: Quantity, step: Fraction) -> str:
    try:
        value, suffix = parts(written)
    except ValueError:
        raise ValueError(QUANTITY_ERROR) from None
    value = rounded(value, step)
    if is_binary(suffix):
        return binary(min(value, MAX_QUANTITY))
    if suffix[1:]:  # an exponent
        number, exponent = thousands(value)
        return f"{number}e{exponent}" if exponent else str(number)
    return decimal(value)


def format_time(instant: datetime) -> str:
    """As metav1.Time: UTC, in seconds."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(instant: datetime) -> str:
    """As metav1.MicroTime: UTC, in microseconds."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time(written: str) -> str:
    """A metav1.Time in UTC. Raises ValueError unless it is RFC 3339."""
    return format_time(parse_time(written))


def micro_time(written: str) -> str:
    """A metav1.MicroTime in UTC. Raises ValueError unless it is RFC 3339 with exactly six digits of a second."""
    if not MICRO_TIME_SUFFIX.search(written):
        raise ValueError(f'parsing time "{written}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse it')
    return format_micro_time(parse_time(written))


def parse_time(written: str) -> datetime:
    """Raises ValueError unless it is RFC 3339."""
    match = RFC_3339_PATTERN.fullmatch(written)
    if match is None:
        raise ValueError(f'parsing time "{written}" as "2006-01-02T15:04:05Z07:00": cannot parse it')
    fraction = match[1] or ""
    if len(fraction) > 7:  # a dot and six digits; Go truncates the others, too
        written = written.replace(fraction, fraction[:7], 1)
    return datetime.fromisoformat(written).astimezone(UTC)
