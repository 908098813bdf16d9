"""Where do the five programs of a control plane come from? KUBEBUILDER_ASSETS first, one by one, then our own build.

The build is kept outside the repository under a hash of everything that goes into it. By hand: python -m testbed.assets
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.gobuild import build
from testbed.progress import Progress
from testbed.toolchain import AssetsError, go_for, needed_version

MODULE = Path(__file__).with_name("go")
BUILT = "testbed"  # the one file that is all five programs; each is a link to it
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

Builder = Callable[[Path, Progress], None]


@dataclass(frozen=True)
class Binaries:
    """The programs of a control plane, and where they come from in words."""

    etcd: Path
    api_server: Path
    controller_manager: Path
    scheduler: Path
    kubectl: Path
    source: str


def binaries(environment: Mapping[str, str] = os.environ, builder: Builder | None = None) -> Binaries:
    """The five programs; what KUBEBUILDER_ASSETS lacks is built unless it was built before. Raises AssetsError."""
    given = programs_in(environment.get("KUBEBUILDER_ASSETS", ""))
    missing = [name for name in PROGRAMS if name not in given]
    sources = [f"KUBEBUILDER_ASSETS ({', '.join(given)})"] if given else []
    built = Path()
    if missing:
        built = built_folder(cache_folder(environment), builder or builder_for(environment))
        sources.append(f"{built} ({', '.join(missing)})" if given else str(built))
    etcd, api_server, controller_manager, scheduler, kubectl = (given.get(name, built / name) for name in PROGRAMS)
    return Binaries(etcd, api_server, controller_manager, scheduler, kubectl, " and ".join(sources))


def programs_in(folder: str) -> dict[str, Path]:
    """Those of the five that a folder has. Raises AssetsError if it is named and has none: it must be a mistake."""
    if not folder:
        return {}
    found = {name: Path(folder) / name for name in PROGRAMS if (Path(folder) / name).is_file()}
    if not found:
        raise AssetsError(
            f"KUBEBUILDER_ASSETS is {folder}, but none of {', '.join(PROGRAMS)} is there: "
            "name the folder that has them, or unset it to have them built"
        )
    return found


def built_folder(cache: Path, builder: Builder) -> Path:
    """The folder of our own build, made by whoever comes first; others wait for it. Raises AssetsError."""
    folder = cache / key()
    if folder.exists():
        return folder
    progress = Progress()
    with alone(cache / f"{folder.name}.lock", progress):
        if not folder.exists():  # the one we may have waited for has made it
            make_folder(folder, builder, progress)
    return folder


def make_folder(folder: Path, builder: Builder, progress: Progress) -> None:
    """Build beside the folder and rename: it is there as a whole or not at all."""
    for leftover in folder.parent.glob(f"{folder.name}.unfinished-*"):
        shutil.rmtree(leftover)  # of a run that was killed; we hold the lock, so nobody works there
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.unfinished-", dir=folder.parent))
    try:
        builder(unfinished / BUILT, progress)
        for name in PROGRAMS:
            (unfinished / name).symlink_to(BUILT)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    progress.say(f"the control plane of the tests was built in {progress.elapsed}: {folder}")


@contextmanager
def alone(lock: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock that the kernel gives back even if we are killed."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"another run is building the control plane of the tests; waiting for it ({lock})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def builder_for(environment: Mapping[str, str]) -> Builder:
    """The real one: Go from PATH or PyPI, and some minutes."""

    def build_testbed(output: Path, progress: Progress) -> None:
        go = go_for(needed_version(MODULE), cache_folder(environment), environment, progress)
        build(go, MODULE, output, ldflags(), progress)

    return build_testbed


def cache_folder(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "paddle-operator" / "testbed"


def key() -> str:
    """A name for the build that changes with everything it is made of."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((MODULE / name).read_bytes())
    digest.update(f"{ldflags()} {platform.system()} {platform.machine()}".encode())
    return digest.hexdigest()[:16]


def kubernetes_version() -> str:
    """The version that go.mod names, such as v1.36.3."""
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise AssetsError(f"{MODULE / 'go.mod'} requires no k8s.io/kubernetes: name the version to test against")
    return match[1]


def ldflags() -> str:
    """Without them the servers and kubectl call themselves v0.0.0; -s -w leaves out what only a debugger reads."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    variables = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in variables.items())])


if __name__ == "__main__":
    try:
        print(f"Kubernetes {kubernetes_version()} for the tests: {binaries().source}")
    except AssetsError as error:
        sys.exit(str(error))
