"""paddlejob suspend and resume, as a user runs them, and what the other verbs say of a job that rests."""

import asyncio
import json
from pathlib import Path

from tests.support.paddlejob import SOON_SECONDS, Paddlejob, processes_of
from tests.support.programs import a_program

FOR_EVER = "import time\nprint('started', flush=True)\ntime.sleep(1000)"
BRIEF = "import time\ntime.sleep(0.5)"
NOBODY = 'paddlejobs.batch.paddlepaddle.org "nobody" not found (404); paddlejob get lists what there is'


async def test_a_job_rests_and_goes_on(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("run", "--detach", *a_program(tmp_path, FOR_EVER, workers=2, activeDeadlineSeconds=600))
    await running(paddlejob)
    rests = await paddlejob("suspend", "tiny")
    assert rests.code == 0, rests
    last = "tiny is suspended, and no pod of it is left; paddlejob resume tiny starts it again"
    assert rests.output.splitlines()[-1] == last
    assert "tiny  Suspended: spec.suspend is true: " in rests.output
    assert await names_of_pods(paddlejob) == []

    assert (await paddlejob("get")).output.splitlines()[1].split()[:2] == ["tiny", "Suspended"]
    assert (
        "of 600 s are left; while the job is suspended, no time passes" in (await paddlejob("describe", "tiny")).output
    )
    again = await paddlejob("suspend", "tiny")
    assert (again.code, again.errors) == (
        2,
        "paddlejob: tiny is suspended already: paddlejob resume tiny starts it again\n",
    )
    waited = await paddlejob("wait", "tiny", "--timeout", "0.1")
    assert waited.code == 3
    assert "tiny is Suspended, and does not finish before somebody resumes it: paddlejob resume tiny" in waited.errors

    runs = await paddlejob("resume", "tiny")
    assert runs.code == 0, runs
    assert "tiny  Running: all pods run" in runs.output
    assert len(await names_of_pods(paddlejob)) == 2
    again = await paddlejob("resume", "tiny")
    assert (again.code, again.errors) == (
        2,
        "paddlejob: tiny is not suspended but Running: paddlejob suspend tiny would suspend it\n",
    )


async def test_a_job_that_has_finished_and_one_that_is_not_there_are_refused(
    paddlejob: Paddlejob, tmp_path: Path
) -> None:
    await paddlejob("run", *a_program(tmp_path, "print('hello')"))
    for verb in ("suspend", "resume"):
        outcome = await paddlejob(verb, "tiny")
        assert outcome.code == 2, verb
        assert "tiny has finished (Completed), and a finished job is not touched: paddlejob run" in outcome.errors
        missing = await paddlejob(verb, "nobody")
        assert missing.code == 2
        assert NOBODY in missing.errors


async def test_a_job_is_suspended_while_no_cluster_runs_and_then_stays_so(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("run", "--detach", *a_program(tmp_path, FOR_EVER, backoffLimit=1))
    await running(paddlejob)
    await paddlejob("down")
    delayed = await paddlejob("suspend", "tiny")
    assert delayed.output == "tiny is suspended; no cluster runs, and paddlejob up will leave it so\n"
    assert processes_of(paddlejob.state) == []
    await paddlejob("up")
    # The operator's word that it has looked is waited for by the next line: a resumed job starts with new pods.
    assert (await paddlejob("resume", "tiny")).code == 0


async def test_a_job_that_is_made_suspended_starts_when_it_is_resumed(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("up")
    async with paddlejob.started("run", *a_program(tmp_path, BRIEF, suspend=True)) as process:
        assert process.stdout
        seen = b""
        async with asyncio.timeout(SOON_SECONDS):
            while b"no pod exists; paddlejob resume tiny starts it again" not in seen:
                seen = await process.stdout.readline()
        assert (await paddlejob("resume", "tiny", "--no-wait")).output == "tiny is told to resume\n"
        output, errors = await asyncio.wait_for(process.communicate(), SOON_SECONDS)
    assert process.returncode == 0, (output, errors)


async def test_the_yaml_of_a_suspended_job_is_still_that_job(paddlejob: Paddlejob, tmp_path: Path) -> None:
    arguments = a_program(tmp_path, FOR_EVER, suspend=False)
    await paddlejob("run", "--detach", *arguments)
    await running(paddlejob)
    await paddlejob("suspend", "tiny")
    again = await paddlejob("run", "--detach", *arguments)
    assert (again.code, again.output.splitlines()[0]) == (0, "tiny is under way already: following it")


async def test_another_controllers_job_is_left_to_it(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("run", "--detach", *a_program(tmp_path, FOR_EVER, managedBy="kueue.x-k8s.io/multikueue"))
    outcome = await paddlejob("suspend", "tiny")
    told = "tiny is told to suspend; it is kueue.x-k8s.io/multikueue that looks after it\n"
    assert (outcome.code, outcome.output) == (0, told)
    assert (await paddlejob.json("tiny"))["spec"]["suspend"] is True


async def test_a_job_that_is_deleted_by_its_time_to_live_under_the_eyes_of_run_and_wait(
    paddlejob: Paddlejob, tmp_path: Path
) -> None:
    await paddlejob("up")
    fails = await paddlejob("run", *a_program(tmp_path, "import sys; sys.exit(3)", ttlSecondsAfterFinished=0))
    assert fails.code == 1, fails
    assert "tiny-worker-0 exited 3" in fails.output
    await paddlejob("run", "--detach", *a_program(tmp_path, BRIEF, ttlSecondsAfterFinished=0, suspend=True))
    async with asyncio.timeout(SOON_SECONDS):
        while (await paddlejob.json("tiny")).get("status", {}).get("phase") != "Suspended":
            pass
    async with paddlejob.started("wait", "tiny") as waiting:
        assert waiting.stderr
        await waiting.stderr.readline()  # that somebody must resume it: it looks by now
        await paddlejob("resume", "tiny", "--no-wait")
        output, errors = await asyncio.wait_for(waiting.communicate(), SOON_SECONDS)
    assert waiting.returncode == 0, (output, errors)
    assert b"tiny  Completed" in output + errors


async def test_tries_are_told_while_they_last_and_in_the_end(paddlejob: Paddlejob, tmp_path: Path) -> None:
    once = "import os, sys\nfirst = not os.path.exists('/tries/one')\nopen('/tries/one', 'w').close()\nsys.exit(first)"
    (tmp_path / "tries").mkdir()
    volume = {"name": "tries", "hostPath": {"path": str(tmp_path / "tries")}}
    mount = {"name": "tries", "mountPath": "/tries"}
    settings = [
        f"worker.template.spec.volumes={json.dumps([volume])}",
        f"worker.template.spec.containers.0.volumeMounts={json.dumps([mount])}",
    ]
    arguments = [each for setting in settings for each in ("--set", setting)]
    outcome = await paddlejob("run", *a_program(tmp_path, once, backoffLimit=2, ttlSecondsAfterFinished=60), *arguments)
    assert outcome.code == 0, outcome
    assert "tiny-worker-0 exited 1: the program failed" in outcome.output
    assert "; tries used: 1 of 2" in outcome.output
    tail = outcome.output.splitlines()[-3:]
    assert tail[0].startswith("tiny  Completed  after ")
    assert tail[1] == "  tries used: 1 of 2"
    assert tail[2].startswith("  is deleted at ")
    assert "tiny   Completed   Single   1/1" in (await paddlejob("get", "-o", "wide")).output
    assert "Tries:       1 of 2 used" in (await paddlejob("describe", "tiny")).output


async def running(paddlejob: Paddlejob) -> None:
    """Until the program has started, by its log."""
    async with paddlejob.started("logs", "-f", "tiny") as following:
        assert following.stdout
        await asyncio.wait_for(following.stdout.readline(), SOON_SECONDS)


async def names_of_pods(paddlejob: Paddlejob) -> list[str]:
    page = (await paddlejob("describe", "tiny")).output
    return [line.split()[0] for line in page.splitlines() if line.startswith("tiny-")]
