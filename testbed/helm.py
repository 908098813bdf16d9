"""Provides a real Helm for the tests, built once from its Go module."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from testbed.builds import build_once, cache_folder
from testbed.gobuild import build
from testbed.modules import MODULE_PROXY_HINT, Module
from testbed.progress import Progress
from testbed.toolchain import ensure_go

MODULE = Module("helm.sh/helm/v4", "v4.3.1", "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g=")
GO = "1.26.0"  # the `go` line of the module's go.mod
HELM = f"Helm {MODULE.version}"
LDFLAGS = f"-s -w -X {MODULE.path}/internal/version.version={MODULE.version}"


def ensure_helm(environment: Mapping[str, str] = os.environ) -> Path:
    """Build Helm unless it is cached. Raises AssetsError."""

    def fill(folder: Path, progress: Progress) -> None:
        go = ensure_go(GO, cache_folder(environment), environment, progress)
        source = MODULE.copy_source(go, folder)
        build(
            go,
            source,
            folder / "helm",
            LDFLAGS,
            progress,
            packages=["./cmd/helm"],
            description=HELM,
            hint=MODULE_PROXY_HINT,
        )
        shutil.rmtree(source)

    return build_once(cache_folder(environment) / f"helm-{MODULE.key(LDFLAGS)}", fill, HELM) / "helm"
