"""Durations as Kubernetes prints them to people."""

MINUTE, HOUR, DAY = 60, 60 * 60, 24 * 60 * 60
YEAR = 365 * DAY


def human_duration(seconds: float) -> str:
    """`5s`, `3m20s`, `2d4h`: two or three significant digits, as apimachinery's HumanDuration and so kubectl."""
    whole = int(seconds)  # towards zero, as in Go
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _two_units(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two_units(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return _two_units(whole, DAY, "d", HOUR, "h")
    if whole < 2 * YEAR:
        return f"{whole // DAY}d"
    if whole < 8 * YEAR:
        return _two_units(whole, YEAR, "y", DAY, "d")
    return f"{whole // YEAR}y"


def go_duration(seconds: float) -> str:
    """`10s`, `1m20s`, `5m0s`: Go's time.Duration under an hour, as kubelet writes it into CrashLoopBackOff messages."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _two_units(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_unit}" + (f"{rest}{small_unit}" if rest else "")
