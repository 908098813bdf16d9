"""What all verbs share: help, refusals, exit codes, and how jobs are shown with and without a cluster."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from paddle_operator import __version__
from tests.support.paddlejob import STEP_TIMEOUT_SECONDS, InProcessPaddlejob, Paddlejob, wait_no_processes
from tests.support.programs import write_program

HELLO = "print('hello')"


def test_stored_jobs_can_be_read_without_a_cluster(
    paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path
) -> None:
    paddlejob = paddlejob_without_cluster
    paddlejob("run", *write_program(tmp_path, HELLO, cleanPodPolicy="Never"))
    wait_no_processes(paddlejob.state)
    table = paddlejob("get").output.splitlines()
    assert table[0].split() == ["NAME", "STATUS", "MODE", "READY", "AGE"]
    assert table[1].split()[:4] == ["tiny", "Completed", "Single", "1/1"]
    assert paddlejob("logs", "tiny").output == "hello\n"
    assert paddlejob("wait", "tiny").code == 0
    page = paddlejob("describe", "tiny").output
    assert "Completed=True  WorkersSucceeded: the worker succeeded" in page
    assert "pod/tiny-worker-0" in paddlejob("events", "tiny").output
    assert paddlejob("delete", "tiny").output == "tiny deleted\n"
    assert paddlejob("get", "tiny").code == 2
    paddlejob("run", *write_program(tmp_path, HELLO))
    events = paddlejob("describe", "tiny").output.partition("Events")[2]
    assert events.count(" Completed ") == 1, "events of the earlier job of this name are not shown"


@pytest.mark.parametrize("verb", ["get", "describe", "logs", "wait", "events", "delete"])
def test_missing_job_is_refused_in_the_servers_words(paddlejob: InProcessPaddlejob, verb: str) -> None:
    outcome = paddlejob(verb, "nobody")
    assert outcome.code == 2
    assert 'paddlejobs.batch.paddlepaddle.org "nobody" not found' in outcome.errors


def test_job_is_shown_in_every_format(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob("run", *write_program(tmp_path, HELLO))
    by_yaml = yaml.safe_load(paddlejob("get", "tiny", "-o", "yaml").output)
    by_json = json.loads(paddlejob("get", "tiny", "-o", "json").output)
    assert by_yaml == by_json
    assert by_json["status"]["phase"] == "Completed"
    assert paddlejob("get", "-o", "name").output == "paddlejob.batch.paddlepaddle.org/tiny\n"
    assert "the worker succeeded" in paddlejob("get", "-A", "-o", "wide").output


async def test_get_watch_prints_changes(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    async with Paddlejob(paddlejob.state).start("get", "--watch") as watching:
        assert watching.stdout
        await watching.stdout.readline()
        await asyncio.to_thread(paddlejob, "run", "--detach", *write_program(tmp_path, HELLO))
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while b"Completed" not in await watching.stdout.readline():
                pass


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["run"], ["run", "x.yaml", "--nope"], ["wait", "x", "--timeout", "soon"]]
)
def test_invalid_command_line_prints_usage(paddlejob_without_cluster: InProcessPaddlejob, arguments: list[str]) -> None:
    outcome = paddlejob_without_cluster(*arguments)
    assert outcome.code == 2
    assert "Usage: " in outcome.errors + outcome.output
    assert "Traceback" not in outcome.errors


def test_version_is_printed(paddlejob_without_cluster: InProcessPaddlejob) -> None:
    assert paddlejob_without_cluster("--version").output == f"{__version__}\n"


@pytest.mark.parametrize(
    "verb",
    ["", "run", "get", "describe", "logs", "wait", "events", "suspend", "resume", "delete", "up", "down", "kubeconfig"],
)
def test_help_of_every_verb_has_an_example(paddlejob_without_cluster: InProcessPaddlejob, verb: str) -> None:
    outcome = paddlejob_without_cluster(*filter(None, [verb, "--help"]))
    assert outcome.code == 0
    assert "paddlejob" in outcome.output.partition("\n")[2]
