"""paddlejob suspend and resume, and what the other verbs print of a suspended job."""

import asyncio
import json
from pathlib import Path

from tests.support.paddlejob import (
    STEP_TIMEOUT_SECONDS,
    InProcessPaddlejob,
    Paddlejob,
    find_processes,
    start_cluster,
)
from tests.support.programs import SLEEP, write_program

BRIEF = "import time\ntime.sleep(0.5)"
NOT_FOUND = 'paddlejobs.batch.paddlepaddle.org "nobody" not found (404); list jobs with paddlejob get'


def test_job_is_suspended_and_resumed(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob("run", "--detach", *write_program(tmp_path, SLEEP, workers=2, activeDeadlineSeconds=600))
    paddlejob.wait_phase("tiny", "Running")
    suspended = paddlejob("suspend", "tiny")
    assert suspended.code == 0, suspended
    last = "tiny is suspended and its pods are gone; paddlejob resume tiny starts it again"
    assert suspended.output.splitlines()[-1] == last
    assert "tiny  Suspended: spec.suspend is true: " in suspended.output
    assert pod_names(paddlejob) == []

    assert paddlejob("get").output.splitlines()[1].split()[:2] == ["tiny", "Suspended"]
    page = paddlejob("describe", "tiny").output
    assert "of 600 s left; the deadline is paused while the job is suspended" in page
    again = paddlejob("suspend", "tiny")
    message = "paddlejob: tiny is already suspended; paddlejob resume tiny starts it again\n"
    assert (again.code, again.errors) == (2, message)
    waited = paddlejob("wait", "tiny", "--timeout", "0.1")
    assert waited.code == 3
    assert "tiny is Suspended and cannot finish until it is resumed: paddlejob resume tiny" in waited.errors

    resumed = paddlejob("resume", "tiny")
    assert resumed.code == 0, resumed
    assert "tiny  Running: all pods run" in resumed.output
    assert len(pod_names(paddlejob)) == 2
    again = paddlejob("resume", "tiny")
    message = "paddlejob: tiny is not suspended (Running); paddlejob suspend tiny suspends it\n"
    assert (again.code, again.errors) == (2, message)


def test_finished_and_missing_jobs_are_refused(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob("run", *write_program(tmp_path, "print('hello')"))
    for verb in ("suspend", "resume"):
        outcome = paddlejob(verb, "tiny")
        assert outcome.code == 2, verb
        assert "tiny has finished (Completed) and cannot be suspended or resumed: run its YAML again" in outcome.errors
        missing = paddlejob(verb, "nobody")
        assert missing.code == 2
        assert NOT_FOUND in missing.errors


def test_job_is_suspended_without_a_cluster(paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob = paddlejob_without_cluster
    with start_cluster(paddlejob.state):
        paddlejob("run", "--detach", *write_program(tmp_path, SLEEP, backoffLimit=1))
        paddlejob.wait_phase("tiny", "Running")
    suspended = paddlejob("suspend", "tiny")
    assert suspended.output == "tiny is suspended; no cluster is running, and paddlejob up keeps it suspended\n"
    assert find_processes(paddlejob.state) == []
    with start_cluster(paddlejob.state):
        # resume waits for the operator: a resumed job starts with new pods
        assert paddlejob("resume", "tiny").code == 0


def test_yaml_of_a_suspended_job_is_the_same_job(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    arguments = write_program(tmp_path, SLEEP, suspend=False)
    paddlejob("run", "--detach", *arguments)
    paddlejob.wait_phase("tiny", "Running")
    paddlejob("suspend", "tiny")
    again = paddlejob("run", "--detach", *arguments)
    assert (again.code, again.output.splitlines()[0]) == (0, "tiny unchanged: a job with this spec already exists")


def test_job_of_another_controller_is_left_to_it(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    paddlejob("run", "--detach", *write_program(tmp_path, SLEEP, managedBy="kueue.x-k8s.io/multikueue"))
    outcome = paddlejob("suspend", "tiny")
    message = "suspend requested for tiny; its controller is kueue.x-k8s.io/multikueue\n"
    assert (outcome.code, outcome.output) == (0, message)
    assert paddlejob.json("tiny")["spec"]["suspend"] is True


def test_retries_are_shown_during_the_job_and_at_its_end(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    once = "import os, sys\nfirst = not os.path.exists('/tries/one')\nopen('/tries/one', 'w').close()\nsys.exit(first)"
    (tmp_path / "tries").mkdir()
    volume = {"name": "tries", "hostPath": {"path": str(tmp_path / "tries")}}
    mount = {"name": "tries", "mountPath": "/tries"}
    settings = [
        f"worker.template.spec.volumes={json.dumps([volume])}",
        f"worker.template.spec.containers.0.volumeMounts={json.dumps([mount])}",
    ]
    arguments = [each for setting in settings for each in ("--set", setting)]
    outcome = paddlejob("run", *write_program(tmp_path, once, backoffLimit=2, ttlSecondsAfterFinished=60), *arguments)
    assert outcome.code == 0, outcome
    assert "tiny-worker-0 exited 1: the program failed" in outcome.output
    assert "; retries used: 1 of 2" in outcome.output
    tail = outcome.output.splitlines()[-3:]
    assert tail[0].startswith("tiny  Completed  after ")
    assert tail[1] == "  retries used: 1 of 2"
    assert tail[2].startswith("  is deleted at ")
    assert "tiny   Completed   Single   1/1" in paddlejob("get", "-o", "wide").output
    assert "Retries:     1 of 2 used" in paddlejob("describe", "tiny").output


async def test_run_of_a_suspended_job_ends_after_resume(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    """`run` is a process here: `resume` comes while it waits."""
    arguments = write_program(tmp_path, BRIEF, suspend=True)
    async with Paddlejob(paddlejob.state).start("run", *arguments) as process:
        assert process.stdout
        line = b""
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while b"no pod exists; paddlejob resume tiny starts it again" not in line:
                line = await process.stdout.readline()
        resumed = await asyncio.to_thread(paddlejob, "resume", "tiny", "--no-wait")
        assert resumed.output == "resume requested for tiny\n"
        output, errors = await asyncio.wait_for(process.communicate(), STEP_TIMEOUT_SECONDS)
    assert process.returncode == 0, (output, errors)


def test_run_reports_a_job_that_its_ttl_deleted(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    failed = paddlejob("run", *write_program(tmp_path, "import sys; sys.exit(3)", ttlSecondsAfterFinished=0))
    assert failed.code == 1, failed
    assert "tiny-worker-0 exited 3" in failed.output


async def test_wait_reports_a_job_that_its_ttl_deleted(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    """`wait` is a process here: `resume` comes while it waits."""
    arguments = write_program(tmp_path, BRIEF, ttlSecondsAfterFinished=0, suspend=True)
    await asyncio.to_thread(paddlejob, "run", "--detach", *arguments)
    await asyncio.to_thread(paddlejob.wait_phase, "tiny", "Suspended")
    async with Paddlejob(paddlejob.state).start("wait", "tiny") as waiting:
        assert waiting.stderr
        await waiting.stderr.readline()  # the hint to resume it: by now it watches
        await asyncio.to_thread(paddlejob, "resume", "tiny", "--no-wait")
        output, errors = await asyncio.wait_for(waiting.communicate(), STEP_TIMEOUT_SECONDS)
    assert waiting.returncode == 0, (output, errors)
    assert b"tiny  Completed" in output + errors


def pod_names(paddlejob: InProcessPaddlejob) -> list[str]:
    page = paddlejob("describe", "tiny").output
    return [line.split()[0] for line in page.splitlines() if line.startswith("tiny-")]
