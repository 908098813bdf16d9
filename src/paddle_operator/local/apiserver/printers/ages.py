"""How long ago something was, in the few letters in which kubectl tells it: `5s`, `3m20s`, `2d4h`."""

from collections.abc import Iterable
from datetime import datetime

from paddle_operator.kube.durations import human_duration
from paddle_operator.local.apiserver.scheme.canonical import instant

NEVER = "<unknown>"


def age(since: object, now: datetime) -> str:
    """The age of an instant as it stands in an object; what is no instant has an unknown age."""
    if not isinstance(since, str):
        return NEVER
    try:
        return human_duration((now - instant(since)).total_seconds())
    except ValueError:
        return NEVER


def latest(instants: Iterable[object]) -> str | None:
    """The last of the instants that there are; written in one form, they sort as texts."""
    return max((each for each in instants if isinstance(each, str)), default=None)
