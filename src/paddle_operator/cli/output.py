"""Prints lines: results on standard output, everything else on standard error. Flushed, since a pipe may be read live."""

import sys


def echo(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def echo_error(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
