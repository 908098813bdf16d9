"""paddlejob run: what it prints, what it refuses, how it ends."""

import sys
from pathlib import Path

import pytest
import yaml

from tests.support.paddlejob import EXAMPLES, InProcessPaddlejob
from tests.support.programs import SLEEP, write_program

HELLO = 'print("hello"); print(\'PADDLE_RESULT {"accuracy": 0.5}\')'
WIDE_AND_DEEP = str(EXAMPLES / "wide_and_deep.yaml")


def test_job_is_shown_from_creation_to_result(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    outcome = paddlejob("run", *write_program(tmp_path, HELLO, workers=2))
    assert outcome.code == 0, outcome
    lines = outcome.output.splitlines()
    assert lines[0] == "tiny created"
    assert "worker-1 | hello" in lines
    assert lines[-3].startswith("tiny  Completed  after ")
    assert lines[-2:] == ["  worker-0  accuracy 0.5", "  worker-1  accuracy 0.5"]


def test_finished_job_is_run_again(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    arguments = write_program(tmp_path, HELLO)
    paddlejob("run", *arguments)
    again = paddlejob("run", arguments[0])  # without --image: the directory of the image is stored
    assert again.code == 0, again
    assert again.output.startswith("tiny created again: the previous job of this name had finished\n")


@pytest.mark.parametrize(
    ("script", "last_line"),
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
def test_failed_pod_is_named_with_its_last_lines(
    paddlejob: InProcessPaddlejob, tmp_path: Path, script: str, last_line: str
) -> None:
    outcome = paddlejob("run", *write_program(tmp_path, script))
    assert outcome.code == 1, outcome
    assert "tiny-worker-0 exited 1: the program failed: its log has the reason" in outcome.summary
    assert outcome.output.splitlines()[-1].strip() == last_line


def test_exit_code_2_is_explained(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    outcome = paddlejob("run", *write_program(tmp_path, "import sys; sys.exit(2)"))
    assert outcome.code == 1
    assert "exited 2: a bad command line: retrying would not help" in outcome.summary


def test_unknown_image_is_refused(paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path) -> None:
    path, *_ = write_program(tmp_path, HELLO)
    outcome = paddlejob_without_cluster("run", path)
    assert outcome.code == 2
    assert 'image "program:v1" is unknown' in outcome.errors
    assert "--image program=DIR" in outcome.errors
    assert "--python" in outcome.errors


def test_missing_gpu_is_refused(paddlejob_without_cluster: InProcessPaddlejob) -> None:
    outcome = paddlejob_without_cluster("run", EXAMPLES / "resnet.yaml")
    assert (outcome.code, outcome.errors) == (
        2,
        "paddlejob: the job requests 2 nvidia.com/gpu, and this machine has 0: "
        "run it with --cpu, or on a cluster that has them (--context)\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "nowhere.yaml cannot be read: No such file or directory"),
        ([".", "--set", "x"], ". cannot be read: Is a directory"),
        ([WIDE_AND_DEEP, "--set", "worker.replicas=-1"], "spec.worker.replicas is -1, but"),
        ([WIDE_AND_DEEP, "--set", "worker.replica=1"], 'unknown field "spec.worker.replica"'),
        ([WIDE_AND_DEEP, "--image", "x"], "--image x is not of the form NAME=VALUE"),
        ([WIDE_AND_DEEP, "--volume", "a=/nowhere"], "the directory does not exist"),
    ],
)
def test_invalid_request_is_refused_in_one_message(
    paddlejob_without_cluster: InProcessPaddlejob, arguments: list[str], message: str
) -> None:
    outcome = paddlejob_without_cluster("run", *arguments)
    assert outcome.code == 2, outcome
    assert message in outcome.errors
    assert "Traceback" not in outcome.errors


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("worker.template.spec.containers.0.resources.requests.cpu=640", "Insufficient cpu"),
        ("worker.template.spec.containers.0.name=No_Name", "tiny-worker-0"),
    ],
    ids=["more than the machine has", "pods that the API server refuses"],
)
def test_job_that_can_never_start_is_stopped(
    paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path, setting: str, message: str
) -> None:
    outcome = paddlejob_without_cluster("run", *write_program(tmp_path, HELLO), "--set", setting)
    assert outcome.code == 1, outcome
    assert "tiny cannot start here: " in outcome.errors
    assert message in outcome.errors


def test_dry_run_prints_manifests_and_stores_nothing(paddlejob_without_cluster: InProcessPaddlejob) -> None:
    outcome = paddlejob_without_cluster("run", WIDE_AND_DEEP, "--dry-run", "--set", "worker.replicas=3")
    assert outcome.code == 0, outcome
    assert yaml.safe_load(outcome.output)["spec"]["worker"]["replicas"] == 3
    assert paddlejob_without_cluster("get").errors == "No PaddleJobs found in namespace default.\n"


def test_timeout_stops_the_job(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    outcome = paddlejob("run", *write_program(tmp_path, SLEEP), "--timeout", "1")
    assert outcome.code == 3, outcome
    assert paddlejob("get").errors == "No PaddleJobs found in namespace default.\n"


def test_two_jobs_run_at_the_same_time(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    """Each listens on its PADDLE_PORT for a second, so neither ends before the other has started."""
    script = "import os, socket, time\ns = socket.create_server(('', int(os.environ['PADDLE_PORT'])))\ntime.sleep(1)"
    for name in ("one", "two"):
        assert paddlejob("run", "--detach", *write_program(tmp_path, script, name=name)).code == 0
    outcomes = [paddlejob("wait", name) for name in ("one", "two")]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes


def test_python_of_this_machine_replaces_the_image(
    paddlejob_without_cluster: InProcessPaddlejob, tmp_path: Path
) -> None:
    path, *_ = write_program(tmp_path, HELLO)
    command = "worker.template.spec.containers.0.command=[python3, -c, 'import sys; print(sys.prefix)']"
    outcome = paddlejob_without_cluster("run", path, "--python", sys.executable, "--set", command)
    assert outcome.code == 0, outcome
    assert f"worker-0 | {sys.prefix}" in outcome.output
