"""Does a real API server, which has the rules as schema and CEL, say what we say?"""

import asyncio
import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paddle_operator.api.paddlejob import InvalidSpec
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import Invalid
from paddle_operator.kube.objects import Key
from testbed.control_plane import ControlPlane
from testbed.request import RequestError
from tests.api.jobs import PADDLE_JOBS, Written, a_role, make_job, make_template, read
from tests.api.transitions import MULTIKUEUE, TRANSITIONS, Transition
from tests.api.wrong_jobs import CASES, Case
from tests.api.wrong_policies import POLICY_CASES

BATCH = 40
BATCHES = 15
OF_SCALE = "should be a non-negative integer"  # the scale subresource has an opinion of its own about the workers


@pytest.mark.parametrize("case", [case for case in CASES if case not in POLICY_CASES], ids=str)
async def test_kubectl_refuses_a_wrong_job_and_takes_the_right_one(
    control_plane: ControlPlane, paddlejob_crd: None, case: Case
) -> None:
    async def applied(spec: Written, name: str) -> str:
        manifest = json.dumps(make_job(spec, name))
        return await control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=manifest)

    with pytest.raises(RequestError, match=re.escape(case.server or case.sentence)):
        await applied(case.wrong, case.wrong_name)
    assert await applied(case.right, case.right_name)


@pytest.mark.parametrize("case", POLICY_CASES, ids=str)
async def test_a_wrong_policy_is_refused_and_the_right_one_taken(
    client: Client, paddlejob_crd: None, case: Case
) -> None:
    with pytest.raises(Invalid, match=re.escape(case.server or case.sentence)):
        await client.create(PADDLE_JOBS, make_job(case.wrong), dry_run=True, strict=True)
    await client.create(PADDLE_JOBS, make_job(case.right), dry_run=True, strict=True)


async def test_nobody_can_change_what_lasts(client: Client, paddlejob_crd: None, namespace: str) -> None:
    """KF-C10, KF-C15; all at once, since each takes a job that is stored."""

    async def told(number: int, transition: Transition) -> tuple[str, ...]:
        key = Key(namespace, f"mnist-{number}")
        await client.create(PADDLE_JOBS, make_job(transition.stored, *reversed(key)))
        try:
            await client.merge(PADDLE_JOBS, key, {"spec": transition.change})
        except Invalid as refusal:
            return sentences_of(refusal)
        return ()

    found = await asyncio.gather(*(told(number, each) for number, each in enumerate(TRANSITIONS)))
    wanted = [(each.refused,) if each.refused else () for each in TRANSITIONS]
    assert dict(zip(map(str, TRANSITIONS), found, strict=True)) == dict(zip(map(str, TRANSITIONS), wanted, strict=True))


async def test_managed_by_allows_finalizer_and_status_writes(
    client: Client, paddlejob_crd: None, namespace: str
) -> None:
    key = Key(namespace, "mnist")
    written = make_job({"worker": a_role(), "managedBy": MULTIKUEUE}, *reversed(key))
    written["metadata"]["finalizers"] = ["example.org/held"]
    await client.create(PADDLE_JOBS, written)
    await client.merge_status(PADDLE_JOBS, key, {"phase": "Running"})
    await client.merge(PADDLE_JOBS, key, {"metadata": {"finalizers": None}})


# Mostly right, and otherwise just beyond a limit or of the wrong type: about a third of the jobs are right.
ODD: st.SearchStrategy[Any] = st.sampled_from(["x", "", True, 1.5, [], {}, None])
ODD_TEXT: st.SearchStrategy[Any] = st.sampled_from(
    ["x", True, 1.5, [], {}, None]
)  # an empty text is as if the field were not there


def mostly(right: st.SearchStrategy[Any], *wrong: object, odd: st.SearchStrategy[Any] = ODD) -> st.SearchStrategy[Any]:
    beyond = st.sampled_from(wrong) if wrong else odd
    return st.integers(0, 40).flatmap(lambda number: {0: odd, 1: beyond}.get(number, right))


def seldom(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Written]:
    """A map in which about one field in three is there."""
    nothing: st.SearchStrategy[Any] = st.just(None)
    every = st.fixed_dictionaries({key: st.one_of(nothing, nothing, value) for key, value in fields.items()})
    return every.map(lambda found: {key: value for key, value in found.items() if value is not None})


PORTS = st.lists(
    st.fixed_dictionaries(
        {"containerPort": st.sampled_from([1, 80, 65535] * 5 + [0, 65536])},  # types in a template: the schema alone
        optional={"hostPort": st.sampled_from([0, 65535] * 9 + [-1, 65536])},
    ),
    max_size=2,
    unique_by=lambda port: port["containerPort"],
)
RESTARTS = st.sampled_from([None, None, None, None, "Never", "OnFailure", "Always"])
TEMPLATES = mostly(
    st.builds(lambda ports, policy: with_restarts(make_template(ports=tuple(ports)), policy), PORTS, RESTARTS),
    {},
    {"spec": {}},
    {"spec": {"containers": []}},
)
ROLES = st.tuples(
    st.fixed_dictionaries({"replicas": mostly(st.integers(1, 4), -1, 0, 10000, 10001), "template": TEMPLATES}),
    seldom({"requests": mostly(st.integers(0, 3), -1), "limits": mostly(st.integers(2, 5), -1, 0)}),
).map(lambda parts: parts[0] | parts[1])
POLICIES = mostly(st.sampled_from(["Always", "Never", "OnFailure", "OnCompletion", "OnFailed"]), "Nerver")
GANGS = seldom(
    {"minAvailable": mostly(st.integers(1, 3), 0), "queue": st.just("a"), "minResources": st.just({"cpu": 1})}
)
SECONDS = mostly(st.sampled_from([1, 2, 60]), 0, -1, 2**31 - 1, 2**31)
CODES = mostly(st.lists(mostly(st.sampled_from([1, 2, 137, 255]), 0, 256), min_size=1, max_size=3), [], [1] * 256)
FAILURE_RULES = st.fixed_dictionaries(
    {
        "action": mostly(st.sampled_from(["FailJob", "Count", "Ignore"]), "Retry"),
        "onExitCodes": mostly(
            st.fixed_dictionaries({"operator": mostly(st.sampled_from(["In", "NotIn"]), "Is"), "values": CODES})
        ),
    }
)
FAILURE_POLICIES = st.fixed_dictionaries({"rules": mostly(st.lists(mostly(FAILURE_RULES), min_size=1, max_size=3), [])})
INDEXES = mostly(st.sampled_from(["0", "1", "0-1", "1-3", "2-1", "00"]), "0,1", "-1", "9999", "00000", odd=ODD_TEXT)
SUCCESS_RULES = seldom({"succeededIndexes": INDEXES, "succeededCount": mostly(st.integers(1, 3), 0, -1)})
SUCCESS_POLICIES = st.fixed_dictionaries({"rules": mostly(st.lists(mostly(SUCCESS_RULES), min_size=1, max_size=2), [])})
MANAGERS = mostly(st.sampled_from(["a.b/c", MULTIKUEUE]), "a", "/", "a/" + "b" * 62, odd=ODD_TEXT)
LIMITS = seldom({"backoffLimit": mostly(st.integers(0, 3), -1, 2**31), "podFailurePolicy": mostly(FAILURE_POLICIES)})
LIVES = seldom(
    {
        "suspend": mostly(st.booleans()),
        "activeDeadlineSeconds": SECONDS,
        "startDeadlineSeconds": SECONDS,
        "ttlSecondsAfterFinished": mostly(st.integers(0, 3), -1, 2**31),
        "successPolicy": mostly(SUCCESS_POLICIES),
        "managedBy": MANAGERS,
    }
)
POLICED = st.tuples(LIMITS, LIVES).map(lambda parts: parts[0] | parts[1])
SPECS = seldom(
    {
        "cleanPodPolicy": POLICIES,
        "cleanPolicy": POLICIES,
        "intranet": mostly(st.sampled_from(["PodIP", "Service", "Host"]), "host"),
        "withGloo": mostly(st.integers(0, 2), -1, 3),
        "elastic": mostly(st.integers(0, 1), -1),
        "schedulingPolicy": mostly(GANGS),
        "ps": mostly(ROLES),
        "heter": mostly(ROLES),
    }
)
WITH_WORKERS = st.tuples(SPECS, mostly(ROLES)).map(lambda parts: parts[0] | {"worker": parts[1]})
JOBS = st.tuples(
    WITH_WORKERS | SPECS | st.tuples(WITH_WORKERS, POLICED).map(lambda parts: parts[0] | parts[1]),
    st.one_of(
        st.just("mnist"),
        st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True),
        st.sampled_from(["a" * 51, "a" * 52, "1a", "a.b"]),
    ),
)


def with_restarts(template: Written, policy: str | None) -> Written:
    return template if policy is None else {"spec": template["spec"] | {"restartPolicy": policy}}


def test_the_api_server_and_we_refuse_the_same_jobs(control_plane: ControlPlane, paddlejob_crd: None) -> None:
    # Not shrunk: each try is a batch, and what differs is told of each job by itself.
    @settings(
        max_examples=BATCHES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(JOBS, min_size=BATCH, max_size=BATCH))
    def same(jobs: list[tuple[Written, str]]) -> None:
        for (spec, name), theirs in zip(jobs, asyncio.run(asked(control_plane, jobs)), strict=True):
            ours = our_problems(spec, name)
            assert agree(ours, theirs), (name, spec, ours, theirs)
            verdicts[not ours] += 1

    verdicts: Counter[bool] = Counter()
    same()
    assert min(verdicts[True], verdicts[False]) > BATCH, verdicts  # both kinds were among them


def agree(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """The API server asks the rules only where the schema has nothing to say."""
    if any(re.search("in body|Required value|Unsupported value|Too many|Too long", sentence) for sentence in theirs):
        return bool(ours)
    return sorted(ours) == sorted(theirs)


async def asked(control_plane: ControlPlane, jobs: list[tuple[Written, str]]) -> list[tuple[str, ...]]:
    """What the API server has to say about each."""
    async with Client(control_plane.connection()) as client:
        return await asyncio.gather(*(their_problems(client, spec, name) for spec, name in jobs))


async def their_problems(client: Client, spec: Written, name: str) -> tuple[str, ...]:
    try:
        await client.create(PADDLE_JOBS, make_job(spec, name), dry_run=True)
    except Invalid as refusal:
        return sentences_of(refusal)
    return ()


def sentences_of(refusal: Invalid) -> tuple[str, ...]:
    causes = refusal.status.details.causes if refusal.status.details else ()
    said = [re.sub("^Invalid value: (-?[0-9]+: )?", "", cause.message) for cause in causes]  # some name the value first
    return tuple(sentence for sentence in said if OF_SCALE not in sentence)


def our_problems(spec: Written, name: str) -> tuple[str, ...]:
    try:
        read(spec, name)
    except InvalidSpec as unfit:
        return unfit.problems
    return ()
