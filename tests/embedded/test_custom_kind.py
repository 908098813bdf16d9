"""PaddleJobs on the embedded API server: what it refuses, a real one refuses, and in the same words."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddle_operator.embedded.cluster import served_kinds
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import PlainConnection
from paddle_operator.kube.errors import Invalid
from paddle_operator.kube.objects import Key, Manifest
from paddle_operator.local.apiserver.http_server import ApiServer
from testbed.control_plane import ControlPlane
from tests.api.cases import Case
from tests.api.jobs import PADDLE_JOBS, a_job
from tests.api.transitions import TRANSITIONS, Transition
from tests.api.wrong_policies import POLICY_CASES

TOKEN = "token-of-the-embedded-server"
# What a real server adds where its schema has refused a value: that rules were not asked, or what CEL made of it.
ADDED = ("some validation rules were not checked", "type conversion error")
Words = frozenset[tuple[str, str]]  # of a refusal: each field, and what is said of it


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Client]:
    server = ApiServer(tmp_path, served_kinds(), token=TOKEN)
    async with server, Client(PlainConnection(server.url, TOKEN)) as client:
        yield client


def words_of(refusal: Invalid) -> Words:
    causes = refusal.status.details.causes if refusal.status.details else ()
    return frozenset(
        (cause.field, cause.message) for cause in causes if not any(each in cause.message for each in ADDED)
    )


async def said_of(client: Client, job: Manifest) -> Words:
    """Nothing of a job that is taken."""
    try:
        await client.create(PADDLE_JOBS, job, dry_run=True, strict=True)
    except Invalid as refusal:
        return words_of(refusal)
    return frozenset()


@pytest.mark.parametrize("case", POLICY_CASES, ids=str)
async def test_a_wrong_policy_is_refused_with_the_fix_and_the_right_one_is_taken(embedded: Client, case: Case) -> None:
    words = await said_of(embedded, a_job(case.wrong))
    assert any((case.server or case.sentence) in f"{field}: {message}" for field, message in words), words
    assert await said_of(embedded, a_job(case.right)) == frozenset()


async def test_both_servers_say_the_same_of_every_policy(
    control_plane: ControlPlane, paddlejob_crd: None, embedded: Client
) -> None:
    jobs = [a_job(spec) for case in POLICY_CASES for spec in (case.wrong, case.right)]
    async with Client(control_plane.connection()) as real:
        ours = await asyncio.gather(*(said_of(embedded, job) for job in jobs))
        theirs = await asyncio.gather(*(said_of(real, job) for job in jobs))
    assert ours == theirs


@pytest.mark.parametrize("transition", TRANSITIONS, ids=str)
async def test_what_lasts_cannot_be_changed_and_everything_else_can(embedded: Client, transition: Transition) -> None:
    assert await change_refused(embedded, transition, "default") == transition.refused


async def test_both_servers_take_the_same_changes(
    control_plane: ControlPlane, paddlejob_crd: None, embedded: Client, namespace: str
) -> None:
    async with Client(control_plane.connection()) as real:
        for number, transition in enumerate(TRANSITIONS):
            ours = await change_refused(embedded, transition, "default", f"ours-{number}")
            theirs = await change_refused(real, transition, namespace, f"theirs-{number}")
            assert ours == theirs, transition


async def change_refused(client: Client, transition: Transition, namespace: str, name: str = "mnist") -> str:
    """The sentence with which a change is refused; nothing where it is taken."""
    await client.create(PADDLE_JOBS, a_job(transition.stored, name, namespace))
    try:
        await client.merge(PADDLE_JOBS, Key(namespace, name), {"spec": transition.change})
    except Invalid as refusal:
        ((field, message),) = words_of(refusal)
        assert field == "spec"  # CEL's transition rules stand there
        return message.removeprefix("Invalid value: ")
    return ""
