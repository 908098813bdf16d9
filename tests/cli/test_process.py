"""What only a process shows: signals, closed pipes, exit codes."""

import asyncio
import os
import pty
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.paddlejob import STEP_TIMEOUT_SECONDS, InProcessPaddlejob, Paddlejob, find_processes
from tests.support.programs import SLEEP, write_program


async def read_until(process: asyncio.subprocess.Process, text: bytes) -> None:
    assert process.stdout
    async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
        while text not in await process.stdout.readline():
            pass


async def test_error_is_one_line_with_exit_code_2(process: Paddlejob) -> None:
    outcome = await process("run", "nowhere.yaml")
    message = "paddlejob: nowhere.yaml cannot be read: No such file or directory\n"
    assert (outcome.code, outcome.output, outcome.errors) == (2, "", message)


async def test_ctrl_c_leaves_a_job_that_ran_before(paddlejob: InProcessPaddlejob, tmp_path: Path) -> None:
    arguments = write_program(tmp_path, SLEEP)
    await asyncio.to_thread(paddlejob, "run", "--detach", *arguments)
    await asyncio.to_thread(paddlejob.wait_phase, "tiny", "Running")
    async with Paddlejob(paddlejob.state).start("run", *arguments) as process:
        await read_until(process, b"| started")
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 130
    assert (await asyncio.to_thread(paddlejob.json, "tiny"))["status"]["phase"] == "Running"


async def test_ctrl_c_stops_the_job_within_its_grace_period(process: Paddlejob, tmp_path: Path) -> None:
    handles = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\n"
    grace = ["--set", "worker.template.spec.terminationGracePeriodSeconds=100"]
    async with process.start("run", *write_program(tmp_path, handles + SLEEP), *grace) as running:
        await read_until(running, b"| started")
        running.send_signal(signal.SIGINT)
        output, errors = await running.communicate()
    assert running.returncode == 130, errors
    assert b"worker-0 | bye" in output
    assert b"stopping tiny: its pods get their grace period; press Ctrl-C again to kill them" in errors
    assert find_processes(process.state) == []
    assert (await process("get")).errors == "No PaddleJobs found in namespace default.\n"


async def test_second_ctrl_c_does_not_wait_for_the_grace_period(process: Paddlejob, tmp_path: Path) -> None:
    ignores = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    grace = ["--set", "worker.template.spec.terminationGracePeriodSeconds=500"]
    async with process.start("run", *write_program(tmp_path, ignores + SLEEP), *grace) as running:
        assert running.stderr
        await read_until(running, b"| started")
        running.send_signal(signal.SIGINT)
        await running.stderr.readline()
        running.send_signal(signal.SIGINT)
        await asyncio.wait_for(running.communicate(), STEP_TIMEOUT_SECONDS)
    assert running.returncode == 130


async def test_closed_output_ends_the_command_without_an_error(process: Paddlejob, tmp_path: Path) -> None:
    async with process.start("run", *write_program(tmp_path, SLEEP)) as running:
        assert running.stdout
        assert running.stderr
        await running.stdout.readline()
        running.stdout._transport.close()  # type: ignore[attr-defined]
        errors = await asyncio.wait_for(running.stderr.read(), STEP_TIMEOUT_SECONDS)
        await running.wait()
    assert (running.returncode, b"Traceback" in errors, b"ignored" in errors) == (141, False, False), errors


async def test_terminal_shows_a_live_table(process: Paddlejob, tmp_path: Path) -> None:
    """On a terminal the pods are redrawn below the logs; the summary remains."""
    terminal, child = pty.openpty()
    command = ["-m", "paddle_operator.cli.main", "run", *write_program(tmp_path, "print('hello')")]
    environment = os.environ | {"PADDLEJOB_STATE": str(process.state), "TERM": "xterm", "COLUMNS": "200"}
    environment.pop("KUBECONFIG", None)
    running = await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment, stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    output = await asyncio.wait_for(asyncio.to_thread(read_terminal, terminal), STEP_TIMEOUT_SECONDS)
    assert await running.wait() == 0, output
    for text in (b"\x1b[?25l", b"pod ", b"worker-0 | ", b"hello", b"tiny  Completed  after "):
        assert text in output, (text, output)


def read_terminal(terminal: int) -> bytes:
    """Everything until the other side is closed, which Linux reports as EIO."""
    output = b""
    with suppress(OSError):
        while data := os.read(terminal, 65536):
            output += data
    os.close(terminal)
    return output
