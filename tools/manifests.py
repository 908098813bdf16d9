"""Writes what is installed with `kubectl apply -f`: a file of deploy/ is what kustomize makes of a folder of config/.

`--check` only says what is stale. It needs the kubectl of the test bed, which has kustomize in it.
"""

import subprocess

from testbed.assets import binaries
from tools.derived import ROOT, Texts, main

HEAD = "# Made of config/{folder} by `make manifests`: change it there.\n"
FILES = {
    "deploy/v1/operator.yaml": "one-namespace",
    "deploy/v1beta1/operator.yaml": "kubernetes-1.15",
    "deploy/v1/operator-cluster-wide.yaml": "cluster-wide",
}


def built(folder: str) -> str:
    """What kustomize makes of a folder of config/. Raises CalledProcessError."""
    command = [str(binaries().kubectl), "kustomize", str(ROOT / "config" / folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own program
    return HEAD.format(folder=folder) + done.stdout


def manifests() -> Texts:
    return {ROOT / name: built(folder) for name, folder in FILES.items()}


if __name__ == "__main__":
    main(__doc__, manifests, "make manifests")
