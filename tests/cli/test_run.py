"""paddlejob run, as a user runs it: what it prints, what it leaves, how it ends."""

import asyncio
import signal
from pathlib import Path

import pytest
import yaml

from tests.support.paddlejob import EXAMPLES, SOON_SECONDS, Paddlejob, processes_of
from tests.support.programs import a_program

HELLO = 'print("hello"); print(\'PADDLE_RESULT {"accuracy": 0.5}\')'
FOR_EVER = "import time\nprint('started', flush=True)\ntime.sleep(1000)"


async def test_a_job_is_shown_from_its_first_pod_to_its_result(paddlejob: Paddlejob, tmp_path: Path) -> None:
    outcome = await paddlejob("run", *a_program(tmp_path, HELLO, workers=2))
    assert outcome.code == 0, outcome
    lines = outcome.output.splitlines()
    assert lines[0] == "tiny created"
    assert "worker-1 | hello" in lines
    assert lines[-3].startswith("tiny  Completed  after ")
    assert lines[-2:] == ["  worker-0  accuracy 0.5", "  worker-1  accuracy 0.5"]


async def test_a_second_run_of_a_finished_job_runs_it_again(paddlejob: Paddlejob, tmp_path: Path) -> None:
    arguments = a_program(tmp_path, HELLO)
    await paddlejob("run", *arguments)
    again = await paddlejob("run", arguments[0])  # the folder of the image is remembered
    assert again.code == 0, again
    assert again.output.startswith("tiny run again: the one before had finished\n")


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("open('/dev/full', 'wb', buffering=0).write(b'x')", "OSError: [Errno 28] No space left on device"),
        (
            "import socket\na, b = socket.socket(), socket.socket()\na.bind(('127.0.0.1', 0)); a.listen()\n"
            "b.bind(a.getsockname())",
            "OSError: [Errno 98] Address already in use",
        ),
    ],
    ids=["missing module", "bug", "full disk", "port in use"],
)
async def test_a_program_that_fails_is_named_with_its_last_words(
    paddlejob: Paddlejob, tmp_path: Path, script: str, sentence: str
) -> None:
    outcome = await paddlejob("run", *a_program(tmp_path, script))
    assert outcome.code == 1, outcome
    assert "tiny-worker-0 exited 1: the program failed: its log has the reason" in outcome.summary
    assert outcome.output.splitlines()[-1].strip() == sentence


async def test_a_bad_command_line_is_told_as_one(paddlejob: Paddlejob, tmp_path: Path) -> None:
    outcome = await paddlejob("run", *a_program(tmp_path, "import sys; sys.exit(2)"))
    assert outcome.code == 1
    assert "exited 2: a bad command line: trying again would not help" in outcome.summary


async def test_an_image_that_nobody_knows_is_refused_before_anything_runs(paddlejob: Paddlejob, tmp_path: Path) -> None:
    path, *_ = a_program(tmp_path, HELLO)
    outcome = await paddlejob("run", path)
    assert outcome.code == 2
    assert 'image "program:v1" is not known here' in outcome.errors
    assert "--image program=DIR" in outcome.errors
    assert "--python" in outcome.errors


async def test_a_gpu_that_the_machine_lacks_is_refused_with_the_way_out(paddlejob: Paddlejob) -> None:
    outcome = await paddlejob("run", EXAMPLES / "resnet.yaml")
    assert (outcome.code, outcome.errors) == (
        2,
        "paddlejob: the job asks for 2 nvidia.com/gpu, and this machine has 0: "
        "run it with --cpu, or on a cluster that has them (--context)\n",
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.yaml"], "nowhere.yaml cannot be read: No such file or directory"),
        ([".", "--set", "x"], ". cannot be read: Is a directory"),
        ([str(EXAMPLES / "wide_and_deep.yaml"), "--set", "worker.replicas=-1"], "spec.worker.replicas is -1, but"),
        ([str(EXAMPLES / "wide_and_deep.yaml"), "--set", "worker.replica=1"], 'unknown field "spec.worker.replica"'),
        ([str(EXAMPLES / "wide_and_deep.yaml"), "--image", "x"], "--image x is not of the form NAME=VALUE"),
        ([str(EXAMPLES / "wide_and_deep.yaml"), "--volume", "a=/nowhere"], "there is no such folder"),
    ],
)
async def test_what_cannot_be_run_is_refused_in_one_sentence(
    paddlejob: Paddlejob, arguments: list[str], sentence: str
) -> None:
    outcome = await paddlejob("run", *arguments)
    assert outcome.code == 2, outcome
    assert sentence in outcome.errors
    assert "Traceback" not in outcome.errors


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("worker.template.spec.containers.0.resources.requests.cpu=640", "Insufficient cpu"),
        ("worker.template.spec.containers.0.name=No_Name", "tiny-worker-0"),
    ],
    ids=["more than the machine has", "pods that the API server refuses"],
)
async def test_a_job_that_can_never_start_is_not_waited_for(
    paddlejob: Paddlejob, tmp_path: Path, setting: str, sentence: str
) -> None:
    outcome = await paddlejob("run", *a_program(tmp_path, HELLO), "--set", setting)
    assert outcome.code == 1, outcome
    assert "tiny cannot start here: " in outcome.errors
    assert sentence in outcome.errors


async def test_a_job_that_was_under_way_before_is_left_so_by_ctrl_c(paddlejob: Paddlejob, tmp_path: Path) -> None:
    arguments = a_program(tmp_path, FOR_EVER)
    await paddlejob("run", "--detach", *arguments)
    await paddlejob.runs("tiny")
    async with paddlejob.started("run", *arguments) as process:
        assert process.stdout
        while b"| started" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 130
    assert (await paddlejob.json("tiny"))["status"]["phase"] == "Running"


async def test_a_rehearsal_shows_what_would_be_applied_and_keeps_nothing(paddlejob: Paddlejob) -> None:
    outcome = await paddlejob("run", EXAMPLES / "wide_and_deep.yaml", "--dry-run", "--set", "worker.replicas=3")
    assert outcome.code == 0, outcome
    assert yaml.safe_load(outcome.output)["spec"]["worker"]["replicas"] == 3
    assert (await paddlejob("get")).errors == "No PaddleJobs found in namespace default.\n"


async def test_ctrl_c_ends_the_job_with_its_grace_and_leaves_nothing(paddlejob: Paddlejob, tmp_path: Path) -> None:
    handles = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\n"
    grace = ["--set", "worker.template.spec.terminationGracePeriodSeconds=100"]
    async with paddlejob.started("run", *a_program(tmp_path, handles + FOR_EVER), *grace) as process:
        assert process.stdout
        while b"| started" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        output, errors = await process.communicate()
    assert process.returncode == 130, errors
    assert b"worker-0 | bye" in output
    assert b"stopping: the pods are told to end; Ctrl-C again ends them at once" in errors
    assert processes_of(paddlejob.state) == []
    assert (await paddlejob("get")).errors == "No PaddleJobs found in namespace default.\n"


async def test_output_that_nobody_reads_ends_the_command_without_a_complaint(
    paddlejob: Paddlejob, tmp_path: Path
) -> None:
    async with paddlejob.started("run", *a_program(tmp_path, FOR_EVER)) as process:
        assert process.stdout
        await process.stdout.readline()
        process.stdout._transport.close()  # type: ignore[attr-defined]
        assert process.stderr
        errors = await asyncio.wait_for(process.stderr.read(), SOON_SECONDS)
        await process.wait()
    assert (process.returncode, b"Traceback" in errors, b"ignored" in errors) == (141, False, False), errors


async def test_ctrl_c_twice_does_not_wait_for_the_grace(paddlejob: Paddlejob, tmp_path: Path) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    arguments = a_program(tmp_path, deaf + FOR_EVER)
    long = ["--set", "worker.template.spec.terminationGracePeriodSeconds=500"]
    async with paddlejob.started("run", *arguments, *long) as process:
        assert process.stdout
        assert process.stderr
        while b"| started" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), SOON_SECONDS)
    assert process.returncode == 130


async def test_a_job_that_takes_too_long_is_stopped(paddlejob: Paddlejob, tmp_path: Path) -> None:
    outcome = await paddlejob("run", *a_program(tmp_path, FOR_EVER), "--timeout", "3")
    assert outcome.code == 3, outcome


async def test_two_jobs_run_side_by_side_on_one_cluster(paddlejob: Paddlejob, tmp_path: Path) -> None:
    await paddlejob("up")
    listens = (
        "import os, socket\ns = socket.create_server(('', int(os.environ['PADDLE_PORT'])))\ninput() if 0 else None\n"
    )
    jobs = [a_program(tmp_path, listens + "import time; time.sleep(1)", name=name) for name in ("one", "two")]
    outcomes = await asyncio.gather(*(paddlejob("run", *arguments) for arguments in jobs))
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes


async def test_the_machines_own_python_runs_what_the_yaml_says(paddlejob: Paddlejob, tmp_path: Path) -> None:
    import sys

    path, *_ = a_program(tmp_path, HELLO)
    command = "worker.template.spec.containers.0.command=[python3, -c, 'import sys; print(sys.prefix)']"
    outcome = await paddlejob("run", path, "--python", sys.executable, "--set", command)
    assert outcome.code == 0, outcome
    assert f"worker-0 | {sys.prefix}" in outcome.output
