"""Compares what the operator wrote for a YAML with a reviewed file; values that differ per run are placeholders."""

import base64
import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from paddle_operator.kube.objects import Manifest
from tests.stories.harness import FullObject

FOLDER = Path(__file__).parent / "golden"
TIME = re.compile(r"'?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z'?")
NODES = re.compile(r"( +- <address of a node> <node>\n)+")  # the number of nodes depends on the scheduler
ORDER = ("Service", "Pod", "ConfigMap")


def render(job: FullObject, pods: Iterable[FullObject], created: list[Manifest]) -> str:
    """All created manifests by kind and name, and the job's status, as text."""
    documents = [_decode_binary(each) for each in sorted(created, key=_sort_key)]
    documents.append({"status of": job.key.name, **job.status})
    text = yaml.safe_dump_all(documents, width=10_000)
    for found, name in sorted(_placeholders(job, list(pods), created).items(), key=lambda item: -len(item[0])):
        text = text.replace(found, f"<{name}>")
    return NODES.sub(r"\1", TIME.sub("<time>", text))


def compare(name: str, text: str, *, update: bool) -> None:
    """Raises AssertionError with the difference. With `update` the file is written first."""
    path = FOLDER / f"{name}.yaml"
    if update:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text)
    before = path.read_text() if path.exists() else ""
    difference = difflib.unified_diff(before.splitlines(), text.splitlines(), str(path), "actual", lineterm="")
    assert text == before, "\n".join([*difference, "if that is right: pytest tests/stories --golden-update"])


def _sort_key(manifest: Manifest) -> tuple[int, str]:
    return ORDER.index(manifest["kind"]), manifest["metadata"]["name"]


def _decode_binary(manifest: Manifest) -> dict[str, Any]:
    """Decode binaryData, which is text, into lines."""
    shown = dict(manifest)
    if binary := shown.get("binaryData"):
        shown["binaryData"] = {key: base64.b64decode(value).decode().splitlines() for key, value in binary.items()}
    return shown


def _placeholders(job: FullObject, pods: list[FullObject], created: list[Manifest]) -> dict[str, str]:
    names = {job.uid: "uid of the job", job.key.namespace: "namespace"}
    for pod in pods:
        address = pod.status["podIP"]
        if address == pod.status["hostIP"]:
            names |= {address: "address of a node", pod.spec["nodeName"]: "node"}
        else:
            names[address] = f"address of {pod.key.name}"
        names[pod.uid] = f"uid of {pod.key.name}"
    for manifest in created:
        if digest := manifest["metadata"].get("annotations", {}).get("batch.paddlepaddle.org/contract"):
            names[digest] = "digest"
    return names
