"""Progress of a training as lines of JSON; images/README.md documents the fields."""

import json
import math
import time

Value = str | int | float | bool | None


class Progress:
    """Prints progress lines; the speed covers the time since the last line."""

    def __init__(self, rank: int, workers: int) -> None:
        self._worker: dict[str, Value] = {"rank": rank, "workers": workers}
        self._since = time.monotonic()
        self._samples = 0

    def add_samples(self, samples: int) -> None:
        self._samples += samples

    def report(self, step: int, of: int, **values: Value) -> None:
        """Print a progress line; `step` counts finished steps."""
        now = time.monotonic()
        speed = round(self._samples / max(now - self._since, 1e-9), 1)
        self._since, self._samples = now, 0
        _line("PADDLE_PROGRESS", self._worker | {"step": step, "of": of} | values | {"samples_per_second": speed})

    def report_result(self, **values: Value) -> None:
        """Print the result line, which is the last one."""
        _line("PADDLE_RESULT", self._worker | values)


def _line(kind: str, values: dict[str, Value]) -> None:
    """Print in one write and flush: standard output is a pipe that other threads may write to."""
    print(f"{kind} {json.dumps({name: _number(value) for name, value in values.items()})}\n", end="", flush=True)


def _number(value: Value) -> Value:
    """JSON has neither NaN nor infinity: such a loss becomes null."""
    if not isinstance(value, float):
        return value
    return round(value, 6) if math.isfinite(value) else None
