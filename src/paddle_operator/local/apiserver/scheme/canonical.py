"""The one form in which an API server stores what can be written in several: amounts (`0.5` is `500m`) and times."""

import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from paddle_operator.kube.quantities import MILLI, NANO, Quantity, binary, decimal, is_binary, parts, rounded, thousands

NOT_A_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
LARGEST = Fraction(2**63 - 1)

MICROSECONDS = re.compile(r"\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})$")
RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


def quantity(written: Quantity) -> str:
    """Without a fraction, with the largest suffix that leaves none, in the family in which it was written.

    Raises ValueError in the words of an API server.
    """
    return stepped(written, NANO)


def resource(written: Quantity) -> str:
    """The same of what a container asks for or a node has, which is counted in thousandths: less is rounded up."""
    return stepped(written, MILLI)


@lru_cache(maxsize=1024)  # jobs have the same few amounts in all their pods
def stepped(written: Quantity, step: Fraction) -> str:
    try:
        value, suffix = parts(written)
    except ValueError:
        raise ValueError(NOT_A_QUANTITY) from None
    value = rounded(value, step)
    if is_binary(suffix):
        return binary(min(value, LARGEST))
    if suffix[1:]:  # an exponent
        number, exponent = thousands(value)
        return f"{number}e{exponent}" if exponent else str(number)
    return decimal(value)


def time(written: str) -> str:
    """To the second, in UTC. Raises ValueError for what is not RFC 3339."""
    return instant(written).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(written: str) -> str:
    """In UTC. Raises ValueError for what is not RFC 3339 to the microsecond, no more and no less."""
    if not MICROSECONDS.search(written):
        raise ValueError(f'parsing time "{written}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse it')
    return instant(written).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instant(written: str) -> datetime:
    """Raises ValueError for what is not RFC 3339."""
    found = RFC_3339.fullmatch(written)
    if found is None:
        raise ValueError(f'parsing time "{written}" as "2006-01-02T15:04:05Z07:00": cannot parse it')
    fraction = found[1] or ""
    if len(fraction) > 7:  # a dot and microseconds; the rest is cut off, as Go's formatting does
        written = written.replace(fraction, fraction[:7], 1)
    return datetime.fromisoformat(written).astimezone(UTC)
