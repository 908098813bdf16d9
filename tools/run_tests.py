"""Run the tests in two lanes at once: those that need a control plane, and all others.

Arguments are given to both pytest processes. The last line sums both summaries: `N passed, N failed`.
One process cannot run both: the tests of a control plane share its audit log, and most of them wait for it.
"""

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

LANES = {"cluster": "cluster", "others": "not cluster"}  # the name of a lane, and its pytest marker expression
NO_TESTS_COLLECTED = 5  # pytest's exit code
REPORT_HEAD = re.compile(r"=+ (?:ERRORS|FAILURES|warnings summary|slowest .*|short test summary info) =+$")
SUMMARY = re.compile(r"(?:=+ )?(\d+ [a-z]+(?:, \d+ [a-z]+)* in \d.*)")
COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")


@dataclass
class LaneOutput:
    """What one lane prints: progress at once, the report of failures and the summary when it has ended."""

    name: str
    report: list[str] = field(default_factory=list)
    summary: str = ""

    def print_progress(self, lines: Iterable[str]) -> None:
        for line in lines:
            if match := SUMMARY.match(line):
                self.summary = match[1].rstrip(" =")
            if self.report or REPORT_HEAD.match(line):
                self.report.append(line)
            else:
                write(f"{self.name:>7} | {line}")

    def print_report(self) -> None:
        write("".join(self.report) + f"==> lane {self.name}: {self.summary or 'ended without a summary'}\n")


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def total(outputs: Iterable[LaneOutput], exit_codes: Iterable[int]) -> tuple[int, int]:
    """How many tests passed and failed. An error is a failure, and so is a lane that fails without one."""
    passed = failed = 0
    for output, exit_code in zip(outputs, exit_codes, strict=True):
        counts = Counter({word.rstrip("s"): int(number) for number, word in COUNT.findall(output.summary)})
        failures = counts["failed"] + counts["error"]
        passed += counts["passed"]
        failed += failures or int(exit_code not in (0, NO_TESTS_COLLECTED))
    return passed, failed


def run(command: Sequence[str], lanes: dict[str, str]) -> int:
    """Run the command once a lane. Returns 0 if tests ran and none failed, 5 as pytest does if there was none."""
    outputs = [LaneOutput(name) for name in lanes]
    processes = [start([*command, "-m", expression]) for expression in lanes.values()]
    readers = [
        threading.Thread(target=follow, args=(output, process))
        for output, process in zip(outputs, processes, strict=True)
    ]
    for reader in readers:
        reader.start()
    try:
        join(readers)
    except KeyboardInterrupt:  # a Ctrl-C reaches both lanes, too: they end their fixtures and print their reports
        join(readers)
    exit_codes = [process.wait() for process in processes]
    for output in outputs:
        output.print_report()
    passed, failed = total(outputs, exit_codes)
    write(f"{passed} passed, {failed} failed\n")
    return NO_TESTS_COLLECTED if set(exit_codes) == {NO_TESTS_COLLECTED} else int(failed > 0)


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    """Bytes that are no UTF-8, as a crashing program prints them, must not end the reader."""
    pipe, merged = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(command, stdout=pipe, stderr=merged, encoding="utf-8", errors="replace")  # noqa: S603


def join(readers: Iterable[threading.Thread]) -> None:
    for reader in readers:
        reader.join()


def follow(output: LaneOutput, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        output.print_progress(lines)


if __name__ == "__main__":
    sys.exit(run([sys.executable, "-m", "pytest", *sys.argv[1:]], LANES))
