"""The same requests get the same answers, but for what differences.toml lists, and that list is true."""

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
LISTED: dict[str, dict[str, str]] = DIFFERENCES["answers"]

VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "lastTransitionTime"}
# What admission adds on a cluster that has service accounts, and whom the local one has not.
ADMITTED = {"tolerations", "volumes", "volumeMounts"}
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

RECORD = re.compile(r"in record \(\d+\)")


def plain(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in VOLATILE | ADMITTED}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return RECORD.sub("in record (<version>)", UID.sub("<uid>", value)) if isinstance(value, str) else value


async def answer(server: Server, step: Step) -> dict[str, Any]:
    headers = dict(step.headers)
    if headers.get("Authorization") == "":
        headers.pop("Authorization")
        server = Server(server.name, server.client, server.namespace, server.http, server.url, {})
    reply = await server.ask(
        step.method, step.path, step.body, content_type=step.content_type, text=step.text, **headers
    )
    text = reply.text.replace(server.namespace, "<namespace>")
    try:
        body = plain(json.loads(text))
    except ValueError:
        body = text
    told = {"code": reply.code, "warnings": reply.headers.getall("Warning", [])}
    if isinstance(body, dict) and body.get("kind") == "Status":
        details = body.get("details") or {}
        causes = {(cause.get("field", ""), cause.get("reason", "")) for cause in details.get("causes") or ()}
        about = {key: details.get(key) for key in ("name", "kind", "group")}
        return told | {
            "reason": body.get("reason", ""),
            "message": body.get("message", ""),
            "about": about,
            "causes": causes,
        }
    return told | {"body": body}


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> set[str]:
    """In what two answers differ: the code, else whether it is a Status, else parts of it."""
    if ours["code"] != theirs["code"]:
        return {"code"}
    if ("body" in ours) != ("body" in theirs):
        return {"form"}
    return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}


@pytest.mark.parametrize("scene", SCENES)
async def test_the_same_requests_get_the_same_answers(
    control_plane: ControlPlane, paddlejob_crd: None, tmp_path: Path, scene: str
) -> None:
    unexpected, untrue = [], []
    async with cluster_server(control_plane, "answers") as real, embedded_server(tmp_path, "answers") as embedded:
        for step in SCENES[scene]:
            theirs, ours = await answer(real, step), await answer(embedded, step)
            found = differing(ours, theirs)
            listed = set(LISTED.get(f"{scene}: {step.id}", {}).get("differs", "").split())
            if found - listed:
                unexpected.append(f"{scene}: {step.id}: {sorted(found)}\n  real: {theirs}\n  ours: {ours}")
            if listed - found:
                untrue.append(f"{scene}: {step.id}: {sorted(listed - found)} is listed and does not differ")
    assert not unexpected, "\n".join(unexpected)
    assert not untrue, "\n".join(untrue)


def test_every_listed_difference_is_of_a_step_and_has_a_reason() -> None:
    steps = {f"{scene}: {step.id}" for scene, of in SCENES.items() for step in of}
    assert LISTED.keys() <= steps
    assert all(entry["reason"] and entry["differs"] for entry in LISTED.values())
    assert all(entry["here"] and entry["reason"] for entry in DIFFERENCES["everywhere"].values())
