"""Lines about a training for programs to read; images/README.md says what each field means."""

import json
import math
import time

Value = str | int | float | bool | None


class Progress:
    """Tells how far a training has come; speed is what was trained since the line before."""

    def __init__(self, rank: int, workers: int) -> None:
        self._whose: dict[str, Value] = {"rank": rank, "workers": workers}
        self._since = time.monotonic()
        self._samples = 0

    def trained(self, samples: int) -> None:
        self._samples += samples

    def tell(self, step: int, of: int, **values: Value) -> None:
        """The line for one step; `step` is how many are done."""
        now = time.monotonic()
        speed = round(self._samples / max(now - self._since, 1e-9), 1)
        self._since, self._samples = now, 0
        _line("PADDLE_PROGRESS", self._whose | {"step": step, "of": of} | values | {"samples_per_second": speed})

    def end(self, **values: Value) -> None:
        """The last line: what came of it."""
        _line("PADDLE_RESULT", self._whose | values)


def _line(kind: str, values: dict[str, Value]) -> None:
    """At once and in one piece: standard output is a pipe, and other threads may write to it."""
    print(f"{kind} {json.dumps({name: _number(value) for name, value in values.items()})}\n", end="", flush=True)


def _number(value: Value) -> Value:
    """JSON knows neither NaN nor infinity: a loss that is no number any more is null."""
    if not isinstance(value, float):
        return value
    return round(value, 6) if math.isfinite(value) else None
