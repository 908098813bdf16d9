"""Builders of kubeconfigs and exec plugins."""

import stat
import sys
from pathlib import Path
from typing import Any

import yaml

TOKEN = "s3cr3t-t0ken"  # a secret: no message may contain it


def write_kubeconfig(
    path: Path,
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    namespace: str | None = None,
) -> Path:
    """Write a kubeconfig with one context "here": the cluster "there" and the user "me"."""
    context = {"cluster": "there", "user": "me", "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "there", "cluster": {"server": "https://there:6443"} | (cluster or {})}],
        "users": [{"name": "me", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def write_plugin(path: Path, body: str) -> Path:
    """Write an executable: `answer(**status)` prints an ExecCredential, `run` is the number of the run, from 1."""
    path.write_text(
        f"#!{sys.executable} -IS\n"
        "import json, os, subprocess, sys, time\n"
        f"runs = {str(path.with_suffix('.runs'))!r}\n"
        "with open(runs, 'a') as file: file.write('run\\n')\n"
        "run = len(open(runs).readlines())\n"
        "asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "def answer(**status):\n"
        "    print(json.dumps({'kind': 'ExecCredential', 'apiVersion': asked['apiVersion'], 'status': status}))\n"
        f"{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def count_runs(plugin: Path) -> int:
    runs = plugin.with_suffix(".runs")
    return len(runs.read_text().splitlines()) if runs.exists() else 0


def make_exec_user(command: Path | str, **fields: Any) -> dict[str, Any]:
    """The user section that runs a plugin."""
    settings = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": str(command)}
    return {"exec": settings | fields}
