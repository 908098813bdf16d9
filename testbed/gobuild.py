"""Build programs from Go's sources, and say how far it is: our control plane on two cores in 26 s if compiled before.

With the modules there and nothing compiled, 5 min 37 s were measured (beside other work); downloads come on top. One
command does it all: `go build -v` names each module that it downloads and each package that it compiles.
"""

import os
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO

from testbed.progress import Progress
from testbed.toolchain import AssetsError

TICK_SECONDS = 0.5
MAX_ERROR_LINES = 12  # lines of the compiler's that an error quotes
CONTROL_PLANE = "the control plane of the tests"


def build(
    go: Path,
    module: Path,
    output: Path,
    ldflags: str,
    progress: Progress,
    *,
    packages: Sequence[str] = (".",),
    what: str = CONTROL_PLANE,
    otherwise: str = "set KUBEBUILDER_ASSETS to a folder that has the five programs",
) -> None:
    """Build main packages of a module into `output`, telling how far it is. Raises AssetsError with Go's last words.

    With several packages `output` is a folder; each program in it has the name of its package.
    """
    command = [str(go), "build", "-v", "-trimpath", "-ldflags", ldflags, "-o", str(output), *packages]
    last_words = deque[str](maxlen=MAX_ERROR_LINES)
    downloaded = compiled = 0
    doing = "with what Go's caches have"
    with subprocess.Popen(
        command, cwd=module, env=go_environment(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        for line in lines_or_ticks(process.stderr):
            if line.startswith("go: downloading "):
                downloaded += 1
                doing = f"downloading Go modules: {downloaded}"
            elif line:
                compiled += 1
                doing = f"compiling: {compiled} packages"
                last_words.append(line)
            progress.show(f"building {what}, {doing}")
    if process.returncode != 0:
        raise AssetsError(
            "\n    ".join(
                [
                    f"{go} could not build {what} in {module}. Mend what it says below, or {otherwise}.",
                    *last_words,
                ]
            )
        )


def go_environment() -> dict[str, str]:
    """Ours, but for what would make Go build something else than what the module names."""
    environment = {name: value for name, value in os.environ.items() if name != "GOROOT"}  # go knows its own
    return environment | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


def lines_or_ticks(stream: IO[str]) -> Iterator[str]:
    """The stream's lines, and an empty one whenever none has come for a while: with full caches 26 s are silent."""
    lines = SimpleQueue[str | None]()

    def read() -> None:
        for line in stream:
            lines.put(line.rstrip())
        lines.put(None)

    Thread(target=read, name="output of go build", daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=TICK_SECONDS)
        except Empty:
            line = ""
        if line is None:
            return
        yield line
