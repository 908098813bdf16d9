"""Both servers give the same responses, except for the differences in differences.toml, which must be exact."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from testbed.control_plane import ControlPlane
from tests.conformance.exchanges import SCENES, Step
from tests.conformance.servers import Server, cluster_server, embedded_server

DIFFERENCES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "differences.toml").read_text())
LISTED_DIFFERENCES: dict[str, dict[str, str]] = DIFFERENCES["responses"]

VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "lastTransitionTime"}
# Set by admission plugins on a cluster with service accounts.
SET_BY_ADMISSION = {"tolerations", "volumes", "volumeMounts"}
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

RECORD = re.compile(r"in record \(\d+\)")


def without_volatile_fields(value: Any) -> Any:
    """Without fields that differ between runs."""
    if isinstance(value, dict):
        return {
            key: without_volatile_fields(each) for key, each in value.items() if key not in VOLATILE | SET_BY_ADMISSION
        }
    if isinstance(value, list):
        return [without_volatile_fields(each) for each in value]
    return RECORD.sub("in record (<version>)", UID.sub("<uid>", value)) if isinstance(value, str) else value


async def send_step(server: Server, step: Step) -> dict[str, Any]:
    headers = dict(step.headers)
    if headers.get("Authorization") == "":
        headers.pop("Authorization")
        server = Server(server.name, server.client, server.namespace, server.http, server.url, {})
    reply = await server.request(
        step.method, step.path, step.body, content_type=step.content_type, text=step.text, **headers
    )
    text = reply.text.replace(server.namespace, "<namespace>")
    try:
        body = without_volatile_fields(json.loads(text))
    except ValueError:
        body = text
    response = {"code": reply.code, "warnings": reply.headers.getall("Warning", [])}
    if isinstance(body, dict) and body.get("kind") == "Status":
        details = body.get("details") or {}
        causes = {(cause.get("field", ""), cause.get("reason", "")) for cause in details.get("causes") or ()}
        object_details = {key: details.get(key) for key in ("name", "kind", "group")}
        return response | {
            "reason": body.get("reason", ""),
            "message": body.get("message", ""),
            "details": object_details,
            "causes": causes,
        }
    return response | {"body": body}


def response_differences(ours: dict[str, Any], theirs: dict[str, Any]) -> set[str]:
    """Code if it differs, else form if only one response is a Status, else the differing parts."""
    if ours["code"] != theirs["code"]:
        return {"code"}
    if ("body" in ours) != ("body" in theirs):
        return {"form"}
    return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}


@pytest.mark.parametrize("scene", SCENES)
async def test_responses_are_equal(
    control_plane: ControlPlane, paddlejob_crd: None, tmp_path: Path, scene: str
) -> None:
    unexpected, outdated = [], []
    async with cluster_server(control_plane, "responses") as real, embedded_server(tmp_path, "responses") as embedded:
        for step in SCENES[scene]:
            theirs, ours = await send_step(real, step), await send_step(embedded, step)
            actual = response_differences(ours, theirs)
            listed = set(LISTED_DIFFERENCES.get(f"{scene}: {step.id}", {}).get("differs", "").split())
            if actual - listed:
                unexpected.append(f"{scene}: {step.id}: {sorted(actual)}\n  real: {theirs}\n  ours: {ours}")
            if listed - actual:
                outdated.append(f"{scene}: {step.id}: {sorted(listed - actual)} is listed, but does not differ")
    assert not unexpected, "\n".join(unexpected)
    assert not outdated, "\n".join(outdated)


def test_listed_differences_have_a_step_and_a_reason() -> None:
    steps = {f"{scene}: {step.id}" for scene, scene_steps in SCENES.items() for step in scene_steps}
    assert LISTED_DIFFERENCES.keys() <= steps
    assert all(entry["reason"] and entry["differs"] for entry in LISTED_DIFFERENCES.values())
    assert all(entry["local"] and entry["reason"] for entry in DIFFERENCES["everywhere"].values())
