"""Where does a real Helm for the tests come from? Its own module, built by whoever asks for it first."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from testbed.builds import cache_folder, made_once
from testbed.gobuild import build
from testbed.modules import WAY_OUT, Module
from testbed.progress import Progress
from testbed.toolchain import go_for

MODULE = Module("helm.sh/helm/v4", "v4.3.1", "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g=")
GO = "1.26.0"  # as the module's go.mod wants it
HELM = f"Helm {MODULE.version}"
LDFLAGS = f"-s -w -X {MODULE.path}/internal/version.version={MODULE.version}"


def helm_program(environment: Mapping[str, str] = os.environ) -> Path:
    """Built unless it was built before. Raises AssetsError."""

    def fill(folder: Path, progress: Progress) -> None:
        go = go_for(GO, cache_folder(environment), environment, progress)
        source = MODULE.copied(go, folder)
        build(go, source, folder / "helm", LDFLAGS, progress, packages=["./cmd/helm"], what=HELM, otherwise=WAY_OUT)
        shutil.rmtree(source)

    return made_once(cache_folder(environment) / f"helm-{MODULE.key(LDFLAGS)}", fill, HELM) / "helm"
