"""Paddle still prints what its parameter servers were once debugged with, a hundred lines and more in each pod."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def hushed() -> Iterator[None]:
    """Nothing of it is printed, unless VERBOSE is set; errors and warnings go another way and are not touched."""
    if os.environ.get("VERBOSE"):
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield
