"""Does a real API server, which has the rules as schema and CEL, say what we say?"""

import asyncio
import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.api.paddlejob import Role, Unfit
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import Invalid
from testbed.control_plane import ControlPlane
from testbed.request import RequestError
from tests.api.jobs import PADDLE_JOBS, Written, a_job, a_template, read
from tests.api.wrong_jobs import CASES, Case

BATCH = 40
BATCHES = 15


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_kubectl_refuses_a_wrong_job_and_takes_the_right_one(
    control_plane: ControlPlane, paddlejob_crd: None, namespace: str, case: Case
) -> None:
    async def applied(spec: Written, name: str) -> str:
        manifest = json.dumps(a_job(spec, name, namespace))
        return await control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=manifest)

    with pytest.raises(RequestError, match=re.escape(case.server or case.sentence)):
        await applied(case.wrong, case.wrong_name)
    assert await applied(case.right, case.right_name)


# Values around each limit, and now and then one of the wrong type.
ODD: st.SearchStrategy[Any] = st.sampled_from(["x", "", True, 1.5, [], {}, None])


def mostly(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 30).flatmap(lambda number: ODD if number == 0 else values)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Written]:
    return st.fixed_dictionaries({}, optional=fields)


SMALL = st.integers(-1, 4)
PORTS = st.lists(
    st.fixed_dictionaries({"containerPort": st.sampled_from([0, 1, 80, 65535, 65536])}, optional={"hostPort": SMALL}),
    max_size=2,
    unique_by=lambda port: port["containerPort"],
)
TEMPLATES = st.one_of(
    st.just(a_template()),
    PORTS.map(lambda ports: a_template(ports=tuple(ports))),
    st.sampled_from([{}, {"spec": {}}, {"spec": {"containers": []}}]),
)
ROLES = st.fixed_dictionaries(
    {"replicas": mostly(st.one_of(SMALL, st.sampled_from([10000, 10001]))), "template": TEMPLATES},
    optional={"requests": mostly(SMALL), "limits": mostly(SMALL)},
)
POLICIES = st.sampled_from(["Always", "Never", "OnFailure", "OnCompletion", "OnFailed", "Nerver"])
SPECS = some(
    cleanPodPolicy=mostly(POLICIES),
    cleanPolicy=mostly(POLICIES),
    intranet=mostly(st.sampled_from(["PodIP", "Service", "Host", "host"])),
    withGloo=mostly(SMALL),
    elastic=mostly(SMALL),
    schedulingPolicy=mostly(
        some(minAvailable=mostly(SMALL), queue=st.just("default"), minResources=st.just({"cpu": 1}))
    ),
    **{str(role): mostly(ROLES) for role in Role},
)
NAMES = st.one_of(
    st.just("mnist"),
    st.from_regex(r"[a-z0-9][a-z0-9.-]{0,8}[a-z0-9]", fullmatch=True),
    st.integers(49, 55).map(lambda size: "a" * size),
)


def test_the_api_server_and_we_refuse_the_same_jobs(control_plane: ControlPlane, paddlejob_crd: None) -> None:
    @settings(max_examples=BATCHES, deadline=None, database=None, suppress_health_check=[HealthCheck.data_too_large])
    @given(st.lists(st.tuples(SPECS, NAMES), min_size=BATCH, max_size=BATCH))
    def same(jobs: list[tuple[Written, str]]) -> None:
        verdicts.update(asyncio.run(compared(jobs)))

    async def compared(jobs: list[tuple[Written, str]]) -> list[bool]:
        async with Client(control_plane.connection()) as client:
            return await asyncio.gather(*(agrees(client, spec, name) for spec, name in jobs))

    verdicts: Counter[bool] = Counter()
    same()
    print(verdicts)
    assert min(verdicts[True], verdicts[False]) > BATCH  # both kinds were among them


async def agrees(client: Client, spec: Written, name: str) -> bool:
    """Whether the job is right; fails where the API server and we differ about that, or about why."""
    ours = our_problems(spec, name)
    try:
        await client.create(PADDLE_JOBS, a_job(spec, name), dry_run=True)
    except Invalid as refusal:
        assert refusal.status.details
        theirs = [cause.message.removeprefix("Invalid value: ") for cause in refusal.status.details.causes]
        by_schema = [cause for cause in theirs if re.search("in body|Required value|Unsupported value", cause)]
        assert ours, theirs
        assert by_schema or sorted(ours) == sorted(theirs)  # rules are asked only where the schema has nothing to say
        return False
    assert not ours
    return True


def our_problems(spec: Written, name: str) -> tuple[str, ...]:
    try:
        read(spec, name)
    except Unfit as unfit:
        return unfit.problems
    return ()
