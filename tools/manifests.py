"""Writes the manifests of deploy/, each of which is the kustomize output of a directory of config/.

`--check` only reports stale files. Needs the kubectl of the test bed, which includes kustomize.
"""

import subprocess

from testbed.assets import ensure_binaries
from tools.generated import ROOT, Texts, write_or_check

HEAD = "# Generated from config/{folder} by `make manifests`: edit it there.\n"
FILES = {
    "deploy/v1/operator.yaml": "one-namespace",
    "deploy/v1beta1/operator.yaml": "kubernetes-1.15",
    "deploy/v1/operator-cluster-wide.yaml": "cluster-wide",
}


def kustomize(folder: str) -> str:
    """The kustomize output of a directory of config/. Raises CalledProcessError."""
    command = [str(ensure_binaries().kubectl), "kustomize", str(ROOT / "config" / folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own program
    return HEAD.format(folder=folder) + done.stdout


def manifests() -> Texts:
    return {ROOT / name: kustomize(folder) for name, folder in FILES.items()}


if __name__ == "__main__":
    write_or_check(__doc__, manifests, "make manifests")
