"""Any job in any state of its cluster, for the properties; and along which edges its phase may move."""

import re
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from paddle_operator.api.paddlejob import Condition, PaddleJobStatus, RoleStatus
from paddle_operator.kube.objects import Key
from paddle_operator.kube.writes import Refusal
from paddle_operator.plan.children import Children, ChildView, PodView
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.paddlejob import PlanContext
from paddle_operator.plan.pod_group import GroupView
from tests.support.jobs import (
    GO_FINALIZER,
    SECONDS,
    T0,
    JSONObject,
    make_barrier,
    make_group,
    make_job,
    make_pod,
    make_pods,
    make_refusal,
    make_service,
    make_template,
    with_spec,
)

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
FAR = 100_000  # seconds: no life lasts that long
PAGE = Path(__file__).parents[2] / "docs/en/plan.md"
ALIVE = ("Pending", "Starting", "Running", "Restarting")
quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def edges() -> set[tuple[str, str]]:
    """From the table of the page, so that the page is what is tested: | from | to, to, to |."""
    rows = re.findall(r"^\| `?(\w+|\(new\))`? \| ([\w, `]+) \|", PAGE.read_text(), re.MULTILINE)
    known = {*ALIVE, "(new)", "Suspended", "Completed", "Failed", "Terminating"}
    return {
        ("" if before == "(new)" else before, after)
        for before, row in rows
        if before in known
        for after in re.findall(r"\w+", row)
    }


EDGES = edges()


def now_and_then(*values: Any) -> st.SearchStrategy[Any]:
    """One of these in every third job, and otherwise nothing."""
    return st.one_of(st.none(), st.none(), st.sampled_from(values))


@st.composite
def policies_of(draw: st.DrawFn, workers: int, *, elastic: bool, restarts: str) -> JSONObject:
    """Any that the rules allow."""
    limit = None if elastic else draw(st.sampled_from([None, None, 0, 1, 2, 6]))
    codes = st.lists(st.sampled_from([1, 2, 134, 139, 143]), min_size=1, max_size=3)
    rules = st.builds(
        lambda action, operator, values: {"action": action, "onExitCodes": {"operator": operator, "values": values}},
        st.sampled_from(["FailJob", "Count", "Ignore"]),
        st.sampled_from(["In", "NotIn"]),
        codes,
    )
    written: JSONObject = {
        "suspend": draw(st.sampled_from([None, None, None, None, True])),
        "backoffLimit": limit,
        "activeDeadlineSeconds": draw(now_and_then(31, 700, FAR)),
        "startDeadlineSeconds": draw(now_and_then(30)),
        "ttlSecondsAfterFinished": draw(now_and_then(0, 30, FAR)),
    }
    if limit is not None and restarts == "Never" and draw(st.booleans()):
        written["podFailurePolicy"] = {"rules": draw(st.lists(rules, min_size=1, max_size=3))}
    if workers and draw(st.integers(0, 2)) == 0:
        one = draw(st.integers(0, workers - 1))
        some = [{"succeededIndexes": f"{one}"}, {"succeededIndexes": f"0-{one}"}, {"succeededCount": one + 1}]
        written["successPolicy"] = {"rules": [draw(st.sampled_from(some))]}
    return {key: value for key, value in written.items() if value is not None}


@st.composite
def conditions(draw: st.DrawFn) -> tuple[Condition, ...]:
    """In which a job of any history may be."""
    told = draw(st.lists(st.sampled_from(["Accepted", "Running", "Suspended"]), unique=True))
    return tuple(
        Condition(type_, draw(st.sampled_from(["True", "False"])), "Reason", "it was so", 1, draw(PAST))
        for type_ in sorted(told)
    )


PAST = st.sampled_from([T0, T0 - 9 * SECONDS, T0 - 100 * SECONDS])


@st.composite
def jobs(draw: st.DrawFn, *, stored: bool = True) -> Job:
    """Any job; `stored` ones have a status with any history."""
    elastic = draw(st.sampled_from([None, None, 0, 1]))
    few = st.integers(0, 3)
    ps, heter = (0, 0) if elastic else (draw(few), draw(st.sampled_from([0, 0, 1])))
    workers = draw(st.integers(1, 4)) if elastic or not ps + heter else draw(few)
    restarts = draw(st.sampled_from(["Never", "OnFailure"]))
    job = make_job(
        ps=ps,
        workers=workers,
        heter=heter,
        elastic=elastic,
        intranet=draw(st.sampled_from(["PodIP", "Service", "Host"])),
        clean=draw(st.sampled_from([None, "Always", "Never", "OnFailure", "OnCompletion"])),
        with_gloo=draw(st.sampled_from([None, 0, 1, 2])),
        template=make_template(restartPolicy=restarts),
        policies=draw(policies_of(workers, elastic=bool(elastic), restarts=restarts)),
        finalizers=draw(st.sampled_from([(), (), (GO_FINALIZER,)])),
    )
    if not stored:
        return job
    counts = st.builds(
        RoleStatus, replicas=few, pending=few, starting=few, running=few, failed=few, succeeded=few, unknown=few
    )
    phases = ["", "Pending", "Starting", "Running", "Restarting", "Suspended", "Completed", "Failed"]
    status = PaddleJobStatus(
        phase=draw(st.sampled_from(phases)),
        attempt=draw(st.integers(0, 2)),
        host_port=draw(st.sampled_from([None, 35000])),
        selector=draw(st.sampled_from(["", "created_by_us"])),
        worker=draw(st.none() | counts),
        ps=draw(st.none() | counts),
        start_time=draw(st.none() | PAST),
        completion_time=draw(st.none() | PAST),
        conditions=draw(conditions()),
        restarts=draw(st.integers(0, 2)),
        next_attempt_time=draw(st.sampled_from([None, None, T0 - SECONDS, T0 + 9 * SECONDS])),
        active_since=draw(st.none() | PAST),
        active_seconds=draw(st.sampled_from([0, 20])),
    )
    spec = draw(st.sampled_from([job.spec] * 9 + [with_spec(job, managed_by=MULTIKUEUE).spec]))
    return msgspec.structs.replace(job, status=status, spec=spec)


@st.composite
def pods_in(draw: st.DrawFn, job: Job) -> tuple[PodView, ...]:
    names = [(role, index) for role in ("ps", "worker", "heter") for index in range(5)]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=9))
    return tuple(draw(a_random_pod(job, role, index)) for role, index in chosen)


@st.composite
def a_random_pod(draw: st.DrawFn, job: Job, role: str, index: int) -> PodView:
    phase = draw(st.sampled_from(["Pending", "Pending", "Running", "Running", "Succeeded", "Failed", "Unknown", ""]))
    ended = phase in ("Succeeded", "Failed")
    told: dict[str, Any] = {
        "phase": phase,
        "attempt": draw(st.sampled_from([job.status.attempt, job.status.attempt, 0, 1, 2])),
        "terminating": draw(st.sampled_from([False, False, False, True])),
        "created_by_us": draw(st.sampled_from([True, True, True, False])),
        "ready": draw(st.booleans()),
        "nudged_for": draw(st.sampled_from(["", "abc"])),
        "deadline_seconds": draw(st.sampled_from([None, 1, 600])),
        "exit_code": draw(st.sampled_from([0, 1, 134, 250, 143])) if ended or draw(st.booleans()) else None,
        "finished_at": draw(st.sampled_from([None, T0, T0 - 9 * SECONDS, T0 + 9 * SECONDS])),
        "disrupted": draw(st.integers(0, 9)) == 0,
        "restarts": draw(st.sampled_from([0, 0, 0, 1])),
    }
    if told["terminating"]:
        told["terminates_by"] = T0 + draw(st.sampled_from([-90, -60, -9, 30])) * SECONDS
    if phase == "Pending" and draw(st.booleans()):
        told |= {"address": f"10.0.0.{index + 1}", "waiting": draw(st.sampled_from(["", "CreateContainerConfigError"]))}
    elif phase != "Pending" and draw(st.integers(0, 9)) == 0:
        told |= {"address": draw(st.sampled_from(["", "fd00::1", "10.9.9.9"]))}
    return make_pod(job, role, index, **told)


@st.composite
def children_of(draw: st.DrawFn, job: Job) -> Children:
    return Children(
        draw(pods_in(job)),
        draw(barriers(job)),
        draw(services_of(job)),
        draw(st.lists(refusals(job), max_size=4).map(once)),
        draw(groups(job)),
    )


@st.composite
def groups(draw: st.DrawFn, job: Job) -> GroupView | None:
    phase = draw(st.sampled_from([None, None, "", "Pending", "Inqueue", "Running", "Unknown"]))
    if phase is None:
        return None
    return make_group(
        job,
        phase,
        owner_uid=draw(st.sampled_from([job.uid, job.uid, ""])),
        min_member=draw(st.integers(1, 4)),
        min_resources=draw(st.sampled_from([{}, {"cpu": "1"}])),
        queue=draw(st.sampled_from(["", "default"])),
    )


@st.composite
def barriers(draw: st.DrawFn, job: Job) -> tuple[ChildView, ...]:
    kind = draw(st.sampled_from(["none", "none", "created_by_us", "ours", "go"]))
    if kind == "none":
        return ()
    marks: dict[str, Any] = {
        "attempt": draw(st.sampled_from([job.status.attempt, 0, 1])),
        "terminating": draw(st.sampled_from([False, False, False, True])),
    }
    if kind == "go":
        marks |= {"attempt": 0, "replicas": "", "endpoints_digest": "", "created_by_us": False}
    elif draw(st.booleans()):
        marks |= {"endpoints_digest": "abc"}
    elastic = with_spec(job, elastic=None)
    return (make_barrier(elastic, make_pods(elastic), **marks),)


@st.composite
def services_of(draw: st.DrawFn, job: Job) -> tuple[ChildView, ...]:
    names = [(role, index) for role in ("ps", "worker") for index in range(4)]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=6))
    return tuple(make_service(job, role, index, created_by_us=draw(st.booleans())) for role, index in chosen)


@st.composite
def refusals(draw: st.DrawFn, job: Job) -> Refusal:
    kind = draw(st.sampled_from(["pods", "pods", "services", "configmaps", "podgroups"]))
    name = (
        "mnist"
        if kind in ("configmaps", "podgroups")
        else draw(st.sampled_from(["mnist-worker-0", "mnist-worker-1", "mnist-ps-0"]))
    )
    return make_refusal(job, kind, name, retry_at=T0 + draw(st.integers(-5, 5)) * SECONDS)


def once(found: list[Refusal]) -> tuple[Refusal, ...]:
    by_key: dict[tuple[str, Key], Refusal] = {(each.kind, each.key): each for each in found}
    return tuple(by_key.values())


surroundings = st.builds(
    PlanContext,
    scheduling=st.sampled_from(["", "volcano"]),
    etcd=st.sampled_from(["", "10.0.0.9:2379"]),
    free_host_port=st.sampled_from([None, 35020]),
    status_written_at=st.sampled_from([None, T0, T0 - SECONDS]),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Job, Children, PlanContext]:
    job = draw(jobs())
    return job, draw(children_of(job)), draw(surroundings)
