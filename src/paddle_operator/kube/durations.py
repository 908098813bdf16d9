"""Durations as Kubernetes prints them to people."""

MINUTE, HOUR, DAY = 60, 60 * 60, 24 * 60 * 60
YEAR = 365 * DAY


def human_duration(seconds: float) -> str:
    """`5s`, `3m20s`, `2d4h`: two or three significant digits, as apimachinery's HumanDuration and so kubectl."""
    total = int(seconds)  # towards zero, as in Go
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    if total < 2 * MINUTE:
        return f"{total}s"
    if total < 10 * MINUTE:
        return _two_units(total, MINUTE, "m", 1, "s")
    if total < 3 * HOUR:
        return f"{total // MINUTE}m"
    if total < 8 * HOUR:
        return _two_units(total, HOUR, "h", MINUTE, "m")
    if total < 2 * DAY:
        return f"{total // HOUR}h"
    if total < 8 * DAY:
        return _two_units(total, DAY, "d", HOUR, "h")
    if total < 2 * YEAR:
        return f"{total // DAY}d"
    if total < 8 * YEAR:
        return _two_units(total, YEAR, "y", DAY, "d")
    return f"{total // YEAR}y"


def go_duration(seconds: float) -> str:
    """`10s`, `1m20s`, `5m0s`: Go's time.Duration under an hour, as kubelet writes it into CrashLoopBackOff messages."""
    minutes, remainder = divmod(int(seconds), 60)
    return f"{minutes}m{remainder}s" if minutes else f"{remainder}s"


def _two_units(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    remainder = seconds % large // small
    return f"{seconds // large}{large_unit}" + (f"{remainder}{small_unit}" if remainder else "")
