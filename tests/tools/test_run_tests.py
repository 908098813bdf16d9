"""The two lanes of `make test`: both reports are shown, and the last line counts both."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.run_tests import LaneOutput, run, total

TESTS = """\
import pytest

@pytest.mark.cluster
def test_of_a_cluster():
    assert {cluster}

def test_of_the_others():
    assert {others}
"""


def write_tests(directory: Path, **results: bool) -> list[str]:
    """Returns the command that runs them."""
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = cluster: needs a control plane\n")
    (directory / "test_lanes.py").write_text(TESTS.format(**results))
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={directory}", str(directory)]


LANES = {"cluster": "cluster", "others": "not cluster"}


@pytest.fixture(autouse=True)
def no_pytest_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of the outer run, such as --durations, change what the inner one prints."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def test_lanes_are_counted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(write_tests(tmp_path, cluster=True, others=True), LANES) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 0 failed"
    assert [line.partition(" in ")[0] for line in lines[-3:-1]] == [
        "==> lane cluster: 1 passed, 1 deselected",
        "==> lane others: 1 passed, 1 deselected",
    ]


@pytest.mark.parametrize("failing", ["cluster", "others"])
def test_failed_lane_fails_the_run(failing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other lane runs to its end, and its summary is shown, too."""
    results = {lane: lane != failing for lane in LANES}
    assert run(write_tests(tmp_path, **results), LANES) == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "1 passed, 1 failed"
    assert printed.count(" FAILURES ") == 1
    assert "FAILED" in printed
    assert printed.count("==> lane") == 2


def test_empty_lane_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*write_tests(tmp_path, cluster=True, others=True), "-k", "others"], LANES) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"


def test_no_test_at_all_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt path or -k must not pass in CI."""
    assert run([*write_tests(tmp_path, cluster=True, others=True), "-k", "misspelt"], LANES) == 5
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed"


def test_output_need_not_be_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    program = r"import os; os.write(1, b'\xff\n1 passed in 0.01s\n')"
    assert run([sys.executable, "-c", program], {"cluster": "", "others": ""}) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"


def test_interrupted_lanes_are_reported(tmp_path: Path) -> None:
    """A Ctrl-C goes to the whole process group."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cluster: needs a control plane\n")
    (tmp_path / "test_slow.py").write_text(
        "import pathlib, time\n"
        "def test_slow():\n"
        "    pathlib.Path(__file__).with_name('started').touch()\n"
        "    time.sleep(60)\n"
    )
    command = [
        sys.executable,
        "-m",
        "tools.run_tests",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (tmp_path / "started").exists():
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "KeyboardInterrupt" in printed
    assert re.fullmatch("0 passed, [12] failed", printed.splitlines()[-1])  # the other lane may still be starting


@pytest.mark.parametrize(
    ("summary", "exit_code", "expected"),
    [
        ("3 passed, 2 deselected in 4.10s", 0, (3, 0)),
        ("1 failed, 3 passed, 2 errors in 600.10s (0:10:00)", 1, (3, 3)),
        ("no tests ran in 0.10s", 5, (0, 0)),
        ("", -9, (0, 1)),
        ("3 passed in 4.10s", 3, (3, 1)),
    ],
)
def test_errors_and_crashes_count_as_failures(summary: str, exit_code: int, expected: tuple[int, int]) -> None:
    assert total([LaneOutput("cluster", summary=summary)], [exit_code]) == expected
