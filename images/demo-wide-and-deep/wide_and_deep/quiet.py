"""Suppresses the debug output that Paddle's parameter servers print, a hundred lines and more in each pod."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Discard standard output unless VERBOSE is set; errors and warnings go to standard error."""
    if os.environ.get("VERBOSE"):
        yield
        return
    with open(os.devnull, "w") as devnull, redirect_stdout(devnull):
        yield
