"""Go modules that are built unmodified, each pinned by its hash, which covers the go.sum of its dependencies.

A module with `replace` lines can only be built as the main module, so its folder is copied out of Go's cache.
"""

import hashlib
import json
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from testbed.gobuild import go_environment
from testbed.toolchain import AssetsError

MODULE_PROXY_HINT = "make the module proxy reachable for Go"


@dataclass(frozen=True)
class Module:
    path: str
    version: str
    hash: str

    def key(self, *inputs: object) -> str:
        """A hash of all inputs of a build."""
        parts = (self.path, self.version, self.hash, *inputs, platform.system(), platform.machine())
        return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:16]

    def copy_source(self, go: Path, folder: Path) -> Path:
        """Copy the sources into a subfolder. Raises AssetsError."""
        source = folder / "source"
        copy_writable(self.download(go, folder), source)
        return source

    def download(self, go: Path, folder: Path) -> Path:
        """Download the sources into Go's cache and check their hash. Raises AssetsError."""
        command = [str(go), "mod", "download", "-json", f"{self.path}@{self.version}"]
        result = subprocess.run(command, cwd=folder, env=go_environment(), capture_output=True, text=True, check=False)
        if result.returncode != 0:
            reason = json.loads(result.stdout).get("Error", "") if result.stdout else result.stderr.strip()
            raise AssetsError(
                f"{go} cannot download {self.path} {self.version}: {reason}. To fix this, {MODULE_PROXY_HINT}."
            )
        module = json.loads(result.stdout)
        if module["Sum"] != self.hash:
            raise AssetsError(
                f"{self.path} {self.version} has the hash {module['Sum']} instead of {self.hash}. "
                "Find out why the proxy serves other content before you build it."
            )
        return Path(module["Dir"])


def copy_writable(source: Path, target: Path) -> None:
    """Copy without modes: Go's cache is read-only, and a read-only copy could not be removed."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
