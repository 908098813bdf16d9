"""Does kubectl take every PaddleJob of the documents as it stands, and is nothing of it lost?"""

import json
from typing import Any

import msgspec
import pytest

from paddle_operator.api.paddlejob import read_spec
from testbed.control_plane import ControlPlane
from tests.api.corpus import Document, documents

DOCUMENTS = documents()


def test_the_corpus_is_complete() -> None:
    """Five jobs in the user guide, two in the design, two in the overview, three of the Go project; and ours."""
    verbatim = [each for each in DOCUMENTS if each.source.startswith("corpus/")]
    assert len(verbatim) == 12
    assert len(DOCUMENTS) - len(verbatim) >= 10


@pytest.mark.parametrize("way", ["--server-side=false", "--server-side"])
@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
async def test_a_document_is_applied_and_read_back(
    control_plane: ControlPlane, paddlejob_crd: None, namespace: str, document: Document, way: str
) -> None:
    apply = ("apply", way, "--validate=strict", f"--namespace={namespace}", "--filename=-")
    await control_plane.kubectl(*apply, stdin=document.text)
    job = await stored(control_plane, namespace, document)
    written = document.written
    assert holds_all_of(job["spec"], written["spec"])
    spec = read_spec(msgspec.json.encode(job["spec"]), job["metadata"]["name"])
    ours = msgspec.json.decode(msgspec.json.encode(spec)) | {
        "intranet": str(spec.intranet)
    }  # which is not written where it is the default
    assert holds_all_of(ours, written["spec"] | respelled(written["spec"]))
    again = await control_plane.kubectl(*apply, stdin=document.text)
    assert "unchanged" in again or "serverside-applied" in again
    assert (await stored(control_plane, namespace, document))["metadata"]["generation"] == 1


async def stored(control_plane: ControlPlane, namespace: str, document: Document) -> dict[str, Any]:
    name = document.written["metadata"]["name"]
    job: dict[str, Any] = json.loads(
        await control_plane.kubectl("get", "pdj", name, f"--namespace={namespace}", "--output=json")
    )
    return job


def holds_all_of(found: object, written: object) -> bool:
    """Whether everything that was written is there; defaults may have come to it."""
    if isinstance(written, dict) and isinstance(found, dict):
        return all(key in found and holds_all_of(found[key], value) for key, value in written.items())
    if isinstance(written, list) and isinstance(found, list):
        return len(written) == len(found) and all(map(holds_all_of, found, written))
    return found == written


def respelled(spec: dict[str, Any]) -> dict[str, str]:
    """The policy as we call it, where a document has an old spelling."""
    policy = spec.get("cleanPodPolicy", spec.get("cleanPolicy"))
    return {"cleanPodPolicy": {"OnFailed": "OnFailure"}.get(policy, policy)} if policy else {}
