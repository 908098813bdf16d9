"""Importing the library changes nothing of the process, and the command line does not import an HTTP server."""

import subprocess
import sys

RUNTIME = "client, manager, informer"


def evaluate(statements: str) -> str:
    run = subprocess.run([sys.executable, "-c", statements], check=True, capture_output=True, text=True)
    return run.stdout.strip()


def test_import_keeps_the_recursion_limit_and_the_collector() -> None:
    settings = "(sys.getrecursionlimit(), gc.get_threshold())"
    before = f"import gc, sys; before = {settings}; "
    assert evaluate(f"{before} from paddle_operator.kube import {RUNTIME}; print(before == {settings})") == "True"


def test_settings_are_made_when_asked_for() -> None:
    calls = "process.raise_recursion_limit(); process.freeze_garbage_collector()"
    shown = "print(sys.getrecursionlimit(), gc.get_threshold()[0], gc.get_freeze_count() > 0)"
    assert evaluate(f"import gc, sys; from paddle_operator.kube import process; {calls}; {shown}") == "15000 2000 True"


def test_command_line_does_not_import_aiohttp() -> None:
    """It cost 0.3 of 0.7 CPU seconds of every command."""
    assert evaluate("import sys, paddle_operator.cli.main; print('aiohttp' in sys.modules)") == "False"
