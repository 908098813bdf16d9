"""Where does a real Helm for the tests come from? Its own module, built by whoever asks for it first."""

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
GO = "1.26.0"  # as the module's go.mod wants it
HELM = f"Helm {MODULE.version}"
LDFLAGS = f"-s -w -X {MODULE.path}/internal/version.version={MODULE.version}"


def ensure_helm(environment: Mapping[str, str] = os.environ) -> Path:
    """Built unless it was built before. Raises AssetsError."""

    def fill(folder: Path, progress: Progress) -> None:
        go = ensure_go(GO, cache_folder(environment), environment, progress)
        source = MODULE.copied(go, folder)
        build(
            go,
            source,
            folder / "helm",
            LDFLAGS,
            progress,
            packages=["./cmd/helm"],
            what=HELM,
            otherwise=MODULE_PROXY_HINT,
        )
        shutil.rmtree(source)

    return build_once(cache_folder(environment) / f"helm-{MODULE.key(LDFLAGS)}", fill, HELM) / "helm"
