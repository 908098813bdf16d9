"""The other verbs, on the embedded cluster as it runs and as it was left."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from paddle_operator import __version__
from testbed.assets import Binaries
from tests.support.paddlejob import SOON_SECONDS, Paddlejob, processes_of
from tests.support.programs import a_program

HELLO = "print('hello')"
FOR_EVER = "import time\nprint('started', flush=True)\ntime.sleep(1000)"


async def test_a_job_can_be_looked_at_while_no_cluster_runs(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("run", *a_program(tmp_path, HELLO, cleanPodPolicy="Never"))
    assert processes_of(paddlejob.state) == []
    table = (await paddlejob("get")).output.splitlines()
    assert table[0].split() == ["NAME", "STATUS", "MODE", "READY", "AGE"]
    assert table[1].split()[:4] == ["tiny", "Completed", "Single", "1/1"]
    assert (await paddlejob("logs", "tiny")).output == "hello\n"
    assert (await paddlejob("wait", "tiny")).code == 0
    page = (await paddlejob("describe", "tiny")).output
    assert "Completed=True  WorkersSucceeded: the worker has succeeded" in page
    assert "pod/tiny-worker-0" in (await paddlejob("events", "tiny")).output
    assert (await paddlejob("delete", "tiny")).output == "tiny deleted\n"
    assert (await paddlejob("get", "tiny")).code == 2
    await paddlejob("run", *a_program(tmp_path, HELLO))
    events = (await paddlejob("describe", "tiny")).output.partition("Events")[2]
    assert events.count(" Completed ") == 1, "what happened to an earlier job of the name is not this one's"


async def test_a_name_that_is_not_there_is_told_in_the_servers_words(paddlejob: Paddlejob) -> None:
    for verb in ("get", "describe", "logs", "wait", "events", "delete"):
        outcome = await paddlejob(verb, "nobody")
        assert outcome.code == 2, verb
        assert 'paddlejobs.batch.paddlepaddle.org "nobody" not found' in outcome.errors, verb


async def test_a_cluster_stays_up_until_it_is_taken_down(paddlejob: Paddlejob, tmp_path: Path) -> None:
    assert (await paddlejob("up")).code == 0
    assert "runs already" in (await paddlejob("up")).output
    detached = await paddlejob("run", "--detach", *a_program(tmp_path, FOR_EVER))
    assert detached.output == "tiny created\nTo follow it: paddlejob logs -f tiny\n"
    assert (await paddlejob("wait", "tiny", "--timeout", "0")).code == 3
    async with paddlejob.started("logs", "-f", "tiny") as following:
        assert following.stdout
        assert await asyncio.wait_for(following.stdout.readline(), SOON_SECONDS) == b"worker-0 | started\n"
    assert (await paddlejob("down")).output == "the cluster is down\n"
    assert processes_of(paddlejob.state) == []
    assert (await paddlejob("down")).output == "no cluster runs\n"


async def test_a_stopped_cluster_takes_its_jobs_up_where_they_were_left(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("up")
    await paddlejob("run", "--detach", *a_program(tmp_path, FOR_EVER))
    async with paddlejob.started("logs", "-f", "tiny") as following:
        assert following.stdout
        await asyncio.wait_for(following.stdout.readline(), SOON_SECONDS)
    await paddlejob("down")
    await paddlejob("up")
    outcome = await paddlejob("wait", "tiny", "--timeout", "100")
    assert outcome.code == 1, outcome
    assert "tiny-worker-0 exited" in outcome.output


async def test_a_killed_cluster_leaves_no_process_and_tells_the_truth_afterwards(
    paddlejob: Paddlejob, tmp_path: Path
) -> None:
    await paddlejob("up")
    await paddlejob("run", "--detach", *a_program(tmp_path, FOR_EVER, workers=2))
    async with paddlejob.started("logs", "-f", "tiny") as following:
        assert following.stdout
        await asyncio.wait_for(following.stdout.readline(), SOON_SECONDS)
    await paddlejob.runs("tiny")  # a pod that is not known to have begun would be begun by the next cluster
    pid = json.loads((paddlejob.state / "cluster.json").read_bytes())["pid"]
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(SOON_SECONDS):
        while processes_of(paddlejob.state):
            await asyncio.sleep(0.02)
    assert (await paddlejob("up")).code == 0
    outcome = await paddlejob("wait", "tiny", "--timeout", "100")
    assert outcome.code == 1, outcome
    assert "exited 137 (Lost): the local cluster ended while it ran" in outcome.output


async def test_a_job_of_a_killed_cluster_is_deleted_while_none_runs(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("up")
    await paddlejob("run", "--detach", *a_program(tmp_path, FOR_EVER))
    async with paddlejob.started("logs", "-f", "tiny") as following:
        assert following.stdout
        await asyncio.wait_for(following.stdout.readline(), SOON_SECONDS)
    os.kill(json.loads((paddlejob.state / "cluster.json").read_bytes())["pid"], signal.SIGKILL)
    assert (await paddlejob("delete", "tiny")).output == "tiny deleted\n"
    assert (await paddlejob("get")).errors == "No PaddleJobs found in namespace default.\n"


async def test_everything_is_forgotten_when_asked_to(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("run", *a_program(tmp_path, HELLO))
    assert f"{paddlejob.state} is deleted" in (await paddlejob("down", "--purge")).output
    assert not paddlejob.state.exists()


async def test_jobs_are_shown_in_every_form(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("run", *a_program(tmp_path, HELLO))
    by_yaml = yaml.safe_load((await paddlejob("get", "tiny", "-o", "yaml")).output)
    by_json = json.loads((await paddlejob("get", "tiny", "-o", "json")).output)
    assert by_yaml == by_json
    assert by_json["status"]["phase"] == "Completed"
    assert (await paddlejob("get", "-o", "name")).output == "paddlejob.batch.paddlepaddle.org/tiny\n"
    assert "the worker has succeeded" in (await paddlejob("get", "-A", "-o", "wide")).output


async def test_changes_are_shown_as_they_come(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("up")
    async with paddlejob.started("get", "--watch") as watching:
        assert watching.stdout
        await watching.stdout.readline()
        await paddlejob("run", *a_program(tmp_path, HELLO))
        async with asyncio.timeout(SOON_SECONDS):
            while b"Completed" not in await watching.stdout.readline():
                pass


async def test_kubectl_finds_the_cluster_by_the_kubeconfig(
    paddlejob: Paddlejob, tmp_path: Path, control_plane_binaries: Binaries
) -> None:
    assert (await paddlejob("kubeconfig")).code == 2
    await paddlejob("up")
    path = (await paddlejob("kubeconfig")).output.strip()
    await paddlejob("run", *a_program(tmp_path, HELLO))
    kubectl = await asyncio.create_subprocess_exec(
        control_plane_binaries.kubectl, "--kubeconfig", path, "get", "pdj", "-o", "name", stdout=asyncio.subprocess.PIPE
    )
    assert (await kubectl.communicate())[0] == b"paddlejob.batch.paddlepaddle.org/tiny\n"


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["run"], ["run", "x.yaml", "--nope"], ["wait", "x", "--timeout", "soon"]]
)
async def test_a_command_line_that_cannot_be_used_is_told_so(paddlejob: Paddlejob, arguments: list[str]) -> None:
    outcome = await paddlejob(*arguments)
    assert outcome.code == 2
    assert "Usage: " in outcome.errors + outcome.output
    assert "Traceback" not in outcome.errors


async def test_the_version_is_told(paddlejob: Paddlejob) -> None:
    assert (await paddlejob("--version")).output == f"{__version__}\n"


@pytest.mark.parametrize(
    "verb",
    ["", "run", "get", "describe", "logs", "wait", "events", "suspend", "resume", "delete", "up", "down", "kubeconfig"],
)
async def test_every_verb_teaches_itself_by_example(paddlejob: Paddlejob, verb: str) -> None:
    outcome = await paddlejob(*filter(None, [verb, "--help"]))
    assert outcome.code == 0
    assert "paddlejob" in outcome.output.partition("\n")[2]
