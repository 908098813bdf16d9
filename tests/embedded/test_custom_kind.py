"""PaddleJobs on the embedded API server: it refuses what a real one refuses, with the same messages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddle_operator.embedded.api_server import served_kinds
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.errors import Invalid
from paddle_operator.kube.objects import Key, Manifest
from paddle_operator.local.apiserver.http_server import ApiServer
from testbed.control_plane import ControlPlane
from tests.api.cases import Case
from tests.api.jobs import PADDLE_JOBS, make_job
from tests.api.transitions import TRANSITIONS, Transition
from tests.api.wrong_policies import POLICY_CASES

TOKEN = "token-of-the-embedded-server"
# Causes that a real server adds where its schema refused a value: skipped rules, or errors of CEL.
IGNORED_CAUSES = ("some validation rules were not checked", "type conversion error")
Causes = frozenset[tuple[str, str]]  # field and message of each cause of a refusal


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Client]:
    server = ApiServer(tmp_path, served_kinds(), token=TOKEN)
    async with server, Client(StaticServerConfig(server.url, TOKEN)) as client:
        yield client


def causes_of(refusal: Invalid) -> Causes:
    causes = refusal.status.details.causes if refusal.status.details else ()
    return frozenset(
        (cause.field, cause.message) for cause in causes if not any(each in cause.message for each in IGNORED_CAUSES)
    )


async def causes_of_create(client: Client, job: Manifest) -> Causes:
    """The causes with which a create is refused; empty where it is accepted."""
    try:
        await client.create(PADDLE_JOBS, job, dry_run=True, strict=True)
    except Invalid as refusal:
        return causes_of(refusal)
    return frozenset()


@pytest.mark.parametrize("case", POLICY_CASES, ids=str)
async def test_invalid_policy_is_refused_with_its_fix(embedded: Client, case: Case) -> None:
    causes = await causes_of_create(embedded, make_job(case.wrong))
    assert any((case.server or case.sentence) in f"{field}: {message}" for field, message in causes), causes
    assert await causes_of_create(embedded, make_job(case.right)) == frozenset()


async def test_both_servers_refuse_policies_alike(
    control_plane: ControlPlane, paddlejob_crd: None, embedded: Client
) -> None:
    jobs = [make_job(spec) for case in POLICY_CASES for spec in (case.wrong, case.right)]
    async with Client(control_plane.connection()) as real:
        ours = await asyncio.gather(*(causes_of_create(embedded, job) for job in jobs))
        theirs = await asyncio.gather(*(causes_of_create(real, job) for job in jobs))
    assert ours == theirs


@pytest.mark.parametrize("transition", TRANSITIONS, ids=str)
async def test_immutable_fields_cannot_be_changed(embedded: Client, transition: Transition) -> None:
    assert await refusal_of_update(embedded, transition, "default") == transition.refused


async def test_both_servers_accept_the_same_updates(
    control_plane: ControlPlane, paddlejob_crd: None, embedded: Client, namespace: str
) -> None:
    async with Client(control_plane.connection()) as real:
        for number, transition in enumerate(TRANSITIONS):
            ours = await refusal_of_update(embedded, transition, "default", f"ours-{number}")
            theirs = await refusal_of_update(real, transition, namespace, f"theirs-{number}")
            assert ours == theirs, transition


async def refusal_of_update(client: Client, transition: Transition, namespace: str, name: str = "mnist") -> str:
    """The message with which an update is refused; empty where it is accepted."""
    await client.create(PADDLE_JOBS, make_job(transition.stored, name, namespace))
    try:
        await client.merge(PADDLE_JOBS, Key(namespace, name), {"spec": transition.change})
    except Invalid as refusal:
        ((field, message),) = causes_of(refusal)
        assert field == "spec"  # where CEL reports transition rules
        return message.removeprefix("Invalid value: ")
    return ""
