"""Go modules that are built as they are, each known by its hash; its go.sum, which the hash covers, pins the rest.

A module with `replace` lines builds only as the main one, so that its folder is copied out of Go's cache.
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

MODULE_PROXY_HINT = "give Go a way to the module proxy"


@dataclass(frozen=True)
class Module:
    path: str
    version: str
    hash: str

    def key(self, *made_of: object) -> str:
        """A name for a build that changes with everything it is made of."""
        parts = (self.path, self.version, self.hash, *made_of, platform.system(), platform.machine())
        return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:16]

    def copied(self, go: Path, folder: Path) -> Path:
        """Its sources, in a folder of their own below this one. Raises AssetsError."""
        source = folder / "source"
        copy_writable(self.downloaded(go, folder), source)
        return source

    def downloaded(self, go: Path, folder: Path) -> Path:
        """Where Go keeps the sources, which are those that we know. Raises AssetsError."""
        command = [str(go), "mod", "download", "-json", f"{self.path}@{self.version}"]
        done = subprocess.run(command, cwd=folder, env=go_environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = json.loads(done.stdout).get("Error", "") if done.stdout else done.stderr.strip()
            raise AssetsError(
                f"{go} cannot download {self.path} {self.version}: {reason}. To have it, {MODULE_PROXY_HINT}."
            )
        told = json.loads(done.stdout)
        if told["Sum"] != self.hash:
            raise AssetsError(
                f"{self.path} {self.version} is not what we know: its hash is {told['Sum']} instead of {self.hash}. "
                "Find out who serves another one before you build it."
            )
        return Path(told["Dir"])


def copy_writable(source: Path, target: Path) -> None:
    """Go's cache is read-only, and so would be the copy, which then nobody could remove."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
