"""The one form in which an API server stores what can be written in several: amounts (`0.5` is `500m`) and times."""

import re
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from functools import lru_cache

# With more digits than anybody means, and no more: an exponent without end would keep us busy without end.
QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100}))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
DIGITS = 400  # enough for all of these, exactly
NOT_A_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
NANO, MILLI = Decimal("1e-9"), Decimal("1e-3")
LARGEST = Decimal(2**63 - 1)

MICROSECONDS = re.compile(r"\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})$")
RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


def quantity(written: str | int | float) -> str:
    """Without a fraction, with the largest suffix that leaves none, in the family in which it was written.

    Raises ValueError in the words of an API server.
    """
    return stepped(written, NANO)


def resource(written: str | int | float) -> str:
    """The same of what a container asks for or a node has, which is counted in thousandths: less is rounded up."""
    return stepped(written, MILLI)


@lru_cache(maxsize=1024)  # jobs have the same few amounts in all their pods
def stepped(written: str | int | float, step: Decimal) -> str:
    found = QUANTITY.fullmatch(str(written))
    if found is None:
        raise ValueError(NOT_A_QUANTITY)
    suffix = found[2] or ""
    with localcontext() as context:
        context.prec = DIGITS
        value = rounded(Decimal(found[1]) * factor(suffix), step)
        if suffix in BINARY[1:]:
            value = min(value, LARGEST)
            if abs(value) >= 1024 and value == value.to_integral_value():
                return binary(int(value))
        number, exponent = scaled(value)
    if suffix[:1] in ("e", "E") and suffix != "E":
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{DECIMAL[exponent]}"


def factor(suffix: str) -> Decimal:
    if suffix in BINARY:
        return Decimal(1024) ** BINARY.index(suffix)
    exponent = next((each for each, letter in DECIMAL.items() if letter == suffix), None)
    return Decimal(10) ** (int(suffix[1:]) if exponent is None else exponent)


def binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power + 1 < len(BINARY):
        value //= 1024
        power += 1
    return f"{value}{BINARY[power]}"


def rounded(value: Decimal, step: Decimal) -> Decimal:
    """To a multiple of the step, away from zero: who wants a little gets something."""
    steps, rest = divmod(value, step)
    return (steps + (1 if rest > 0 else -1 if rest < 0 else 0)) * step


def scaled(value: Decimal) -> tuple[int, int]:
    """An integer and its exponent, a multiple of three from -9 on."""
    number = int(value / NANO)
    exponent = -9
    while number and number % 1000 == 0 and exponent < 18:
        number //= 1000
        exponent += 3
    return (number, exponent) if number else (0, 0)


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
