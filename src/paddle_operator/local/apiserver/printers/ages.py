"""How long ago something was, in the few letters in which kubectl tells it: `5s`, `3m20s`, `2d4h`."""

from collections.abc import Iterable
from datetime import datetime

from paddle_operator.local.apiserver.scheme.canonical import instant

NEVER = "<unknown>"
MINUTE, HOUR, DAY = 60, 60 * 60, 24 * 60 * 60
YEAR = 365 * DAY


def age(since: object, now: datetime) -> str:
    """The age of an instant as it stands in an object; what is no instant has an unknown age."""
    if not isinstance(since, str):
        return NEVER
    try:
        return duration((now - instant(since)).total_seconds())
    except ValueError:
        return NEVER


def duration(seconds: float) -> str:
    """With two or three digits of precision, as HumanDuration of apimachinery has it."""
    whole = int(seconds)  # towards zero, as in Go
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return two_units(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return two_units(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return two_units(whole, DAY, "d", HOUR, "h")
    if whole < 2 * YEAR:
        return f"{whole // DAY}d"
    if whole < 8 * YEAR:
        return two_units(whole, YEAR, "y", DAY, "d")
    return f"{whole // YEAR}y"


def two_units(seconds: int, large: int, letter: str, small: int, small_letter: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{letter}" + (f"{rest}{small_letter}" if rest else "")


def latest(instants: Iterable[object]) -> str | None:
    """The last of the instants that there are; written in one form, they sort as texts."""
    return max((each for each in instants if isinstance(each, str)), default=None)
