"""Prints lines: results on standard output, everything else on standard error, flushed for readers of a pipe."""

import sys


def echo(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def echo_error(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
