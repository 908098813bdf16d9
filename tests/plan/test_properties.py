"""What holds of every plan, for any job in any state of its cluster: random worlds, and random lives.

The edges along which a phase may move are read from docs/plan.md, so that the page is what is tested.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from paddle_operator.api.paddlejob import Intranet, PaddleJobStatus, RoleStatus
from paddle_operator.kube.objects import PODS, Key
from paddle_operator.plan import difference
from paddle_operator.plan.job import Surroundings, plan
from paddle_operator.plan.names import pod_name
from paddle_operator.plan.views import Children, ChildView, Job, PodView, Refusal
from paddle_operator.plan.world import World
from paddle_operator.plan.writes import Create, Delete, DeleteAll, Plan
from tests.support.jobs import (
    GO_FINALIZER,
    SECONDS,
    T0,
    a_barrier,
    a_job,
    a_pod,
    a_refusal,
    a_service,
    a_template,
    all_pods,
    changed,
    scaled,
    writes_of,
)
from tests.support.model import Model

PAGE = Path(__file__).parents[2] / "docs/plan.md"
ALIVE = ("Pending", "Starting", "Running", "Restarting")
quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def edges() -> set[tuple[str, str]]:
    """From the table of the page: | from | to, to, to |."""
    rows = re.findall(r"^\| `?(\w+|\(new\))`? \| ([\w, `]+) \|", PAGE.read_text(), re.MULTILINE)
    known = {*ALIVE, "(new)", "Completed", "Failed", "Terminating"}
    return {
        ("" if before == "(new)" else before, after)
        for before, row in rows
        if before in known
        for after in re.findall(r"\w+", row)
    }


EDGES = edges()

# Random worlds


@st.composite
def jobs(draw: st.DrawFn, *, stored: bool = True) -> Job:
    """Any job; `stored` ones have a status with any history."""
    elastic = draw(st.sampled_from([None, None, 0, 1]))
    few = st.integers(0, 3)
    ps, heter = (0, 0) if elastic else (draw(few), draw(st.sampled_from([0, 0, 1])))
    workers = draw(st.integers(1, 4)) if elastic or not ps + heter else draw(few)
    job = a_job(
        ps=ps,
        workers=workers,
        heter=heter,
        elastic=elastic,
        intranet=draw(st.sampled_from(["PodIP", "Service", "Host"])),
        clean=draw(st.sampled_from([None, "Always", "Never", "OnFailure", "OnCompletion"])),
        with_gloo=draw(st.sampled_from([None, 0, 1, 2])),
        template=a_template(restartPolicy=draw(st.sampled_from(["Never", "OnFailure"]))),
        finalizers=draw(st.sampled_from([(), (), (GO_FINALIZER,)])),
    )
    if not stored:
        return job
    counts = st.builds(
        RoleStatus, replicas=few, pending=few, starting=few, running=few, failed=few, succeeded=few, unknown=few
    )
    phases = ["", "Pending", "Starting", "Running", "Restarting", "Completed", "Failed"]
    status = PaddleJobStatus(
        phase=draw(st.sampled_from(phases)),
        attempt=draw(st.integers(0, 2)),
        host_port=draw(st.sampled_from([None, 35000])),
        selector=draw(st.sampled_from(["", "ours"])),
        worker=draw(st.none() | counts),
        ps=draw(st.none() | counts),
        start_time=draw(st.sampled_from([None, T0])),
    )
    return msgspec.structs.replace(job, status=status)


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
        "ours": draw(st.sampled_from([True, True, True, False])),
        "ready": draw(st.booleans()),
        "woken_for": draw(st.sampled_from(["", "abc"])),
        "deadline_seconds": draw(st.sampled_from([None, 1, 600])),
        "exit_code": draw(st.sampled_from([0, 1, 134, 250, 143])) if ended or draw(st.booleans()) else None,
        "finished_at": draw(st.sampled_from([None, T0, T0 - 9 * SECONDS, T0 + 9 * SECONDS])),
    }
    if phase == "Pending" and draw(st.booleans()):
        told |= {"address": f"10.0.0.{index + 1}", "waiting": draw(st.sampled_from(["", "CreateContainerConfigError"]))}
    elif phase != "Pending" and draw(st.integers(0, 9)) == 0:
        told |= {"address": draw(st.sampled_from(["", "fd00::1", "10.9.9.9"]))}
    return a_pod(job, role, index, **told)


@st.composite
def children_of(draw: st.DrawFn, job: Job) -> Children:
    return Children(
        draw(pods_in(job)),
        draw(barriers(job)),
        draw(services_of(job)),
        draw(st.lists(refusals(job), max_size=4).map(once)),
    )


@st.composite
def barriers(draw: st.DrawFn, job: Job) -> tuple[ChildView, ...]:
    kind = draw(st.sampled_from(["none", "none", "ours", "ours", "go"]))
    if kind == "none":
        return ()
    marks: dict[str, Any] = {
        "attempt": draw(st.sampled_from([job.status.attempt, 0, 1])),
        "terminating": draw(st.sampled_from([False, False, False, True])),
    }
    if kind == "go":
        marks |= {"attempt": 0, "replicas": "", "contract": "", "ours": False}
    elif draw(st.booleans()):
        marks |= {"contract": "abc"}
    elastic = changed(job, elastic=None)
    return (a_barrier(elastic, all_pods(elastic), **marks),)


@st.composite
def services_of(draw: st.DrawFn, job: Job) -> tuple[ChildView, ...]:
    names = [(role, index) for role in ("ps", "worker") for index in range(4)]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=6))
    return tuple(a_service(job, role, index, ours=draw(st.booleans())) for role, index in chosen)


@st.composite
def refusals(draw: st.DrawFn, job: Job) -> Refusal:
    kind = draw(st.sampled_from(["pods", "pods", "services", "configmaps"]))
    name = (
        "mnist" if kind == "configmaps" else draw(st.sampled_from(["mnist-worker-0", "mnist-worker-1", "mnist-ps-0"]))
    )
    return a_refusal(job, kind, name, retry_at=T0 + draw(st.integers(-5, 5)) * SECONDS)


def once(found: list[Refusal]) -> tuple[Refusal, ...]:
    by_key: dict[tuple[str, Key], Refusal] = {(each.kind, each.key): each for each in found}
    return tuple(by_key.values())


surroundings = st.builds(
    Surroundings,
    etcd=st.sampled_from(["", "10.0.0.9:2379"]),
    free_port=st.sampled_from([None, 35020]),
    status_written_at=st.sampled_from([None, T0, T0 - SECONDS]),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Job, Children, Surroundings]:
    job = draw(jobs())
    return job, draw(children_of(job)), draw(surroundings)


@quick
@given(worlds(), st.randoms(use_true_random=False))
def test_a_plan_depends_on_nothing_but_what_is_told_and_not_on_its_order(
    world: tuple[Job, Children, Surroundings], random: Any
) -> None:
    job, children, around = world
    first = plan(job, children, T0, around)
    again = plan(job, children, T0, around)
    assert (again, in_full(again)) == (first, in_full(first))
    pods, services = list(children.pods), list(children.services)
    random.shuffle(pods)
    random.shuffle(services)
    other = plan(job, replace(children, pods=tuple(pods), services=tuple(services)), T0, around)
    assert (other.status, other.news, other.wake_at) == (first.status, first.news, first.wake_at)
    assert sorted(in_full(other)) == sorted(in_full(first))


def in_full(desired: Plan) -> list[str]:
    """What is to be written, manifests and all."""
    return [f"{each} {each.manifest if isinstance(each, Create) else ''}" for each in writes_of(desired)]


@settings(quick, max_examples=150)
@given(worlds(), st.sets(st.sampled_from([("configmaps", "mnist"), ("pods", "mnist-worker-0")]), max_size=1))
def test_without_changes_from_outside_planning_comes_to_rest(
    world: tuple[Job, Children, Surroundings], taken: set[tuple[str, str]]
) -> None:
    job, children, around = world
    there = {("pods", pod.name) for pod in children.pods} | {("configmaps", each.name) for each in children.config_maps}
    model = Model(job, children, T0, around)
    model.taken = taken - there
    if model.taken:  # such a name is tried again for ever, and nothing else is left to do
        for _ in range(40):
            model.step()
        kept = model.plan()
        there = {("pods", name) for name in model.pods} | {("configmaps", name) for name in model.config_maps}
        assert not there & model.taken
        assert kept.claims or all(
            isinstance(each, Create) and (each.kind.plural, each.key.name) in taken for each in writes_of(kept)
        )
    else:
        model.settle()
    note(str(model.phases))
    for step in zip(model.phases[1:], model.phases[2:], strict=False):  # the first one was made up
        assert step in EDGES


@quick
@given(worlds())
def test_nothing_is_made_that_exists_and_nothing_deleted_that_must_be_kept(
    world: tuple[Job, Children, Surroundings],
) -> None:
    job, children, around = world
    desired = plan(job, children, T0, around)
    there = {pod.name: pod for pod in children.pods}
    assert job.spec
    seated = {} if job.finished else {pod.name for pod in World(job, job.spec, children).pods()}
    for write in writes_of(desired):
        match write:
            case Create():
                kind = {PODS.plural: children.pods}.get(write.kind.plural, children.config_maps)
                kind = children.services if write.kind.plural == "services" else kind
                assert write.key.name not in {each.name for each in kind}
                assert not job.finished
            case Delete(kind=kind_) if kind_ is PODS:
                pod = there[write.key.name]
                assert (pod.uid, pod.terminating) == (write.uid, False)
                if desired.status.phase not in ("Completed", "Failed"):
                    assert pod.name not in seated
                elif not job.spec.cleans(desired.status.phase):
                    assert not pod.started
                    assert not pod.finished
            case DeleteAll():
                if desired.status.phase in ("Completed", "Failed"):
                    assert job.spec.cleans(desired.status.phase)
                else:
                    assert not seated


@quick
@given(worlds())
def test_a_finished_job_stays_as_it_ended_and_gets_no_pod(world: tuple[Job, Children, Surroundings]) -> None:
    job, children, around = world
    for phase in ("Completed", "Failed"):
        ended = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase=phase))
        desired = plan(ended, children, T0, around)
        assert desired.status == ended.status
        assert not [each for each in writes_of(desired) if isinstance(each, Create)]


@quick
@given(worlds())
def test_no_plan_makes_more_of_a_kind_and_role_than_it_may(world: tuple[Job, Children, Surroundings]) -> None:
    job, children, around = world
    with patch.object(difference, "MOST_AT_ONCE", 2):
        desired = plan(job, children, T0, around)
        for wave in desired.waves:
            assert sum(isinstance(each, Create) for each in wave) <= 2
        Model(job, children, T0, around).settle()


@quick
@given(worlds())
def test_the_barrier_is_made_only_when_every_pod_of_the_attempt_is_reachable(
    world: tuple[Job, Children, Surroundings],
) -> None:
    job, children, around = world
    made = [each for each in writes_of(plan(job, children, T0, around)) if isinstance(each, Create)]
    if not [each for each in made if each.kind.plural == "configmaps"]:
        return
    assert job.spec
    by_name = {pod.name: pod for pod in children.pods}
    for role, part in job.spec.roles.items():
        for index in range(part.replicas):
            pod = by_name[pod_name(job.key, role, index)]
            assert pod.address
            assert pod.attempt == job.status.attempt
            assert job.spec.intranet is Intranet.SERVICE or ":" not in pod.address
    assert not children.config_maps


# Random lives

FREQUENT = ("pass", "all run", "exit", "vanish")
RARE = ("all run", "settle", "address", "start", "fail", "delete", "move", "drop barrier", "drop service", "scale")
ACTIONS = st.sampled_from([*FREQUENT, *FREQUENT, *RARE])


def acts(model: Model, action: str, choice: int) -> None:
    """One thing that happens in the cluster; `choice` says to whom."""
    names = sorted(model.pods)
    name = names[choice % len(names)] if names else ""
    match action:
        case "pass":
            model.step()
        case "settle":
            model.settle()
        case "all run":
            all_run(model)
        case "drop barrier":
            model.config_maps.clear()
        case "drop service":
            model.services.pop(name, None)
        case "scale" if model.job.spec and model.job.spec.worker:
            model.job = scaled(model.job, worker=choice % 4 + 1)
        case _ if name:
            happens(model, action, name, choice)


def happens(model: Model, action: str, name: str, choice: int) -> None:
    match action:
        case "address":
            for each in list(model.pods):
                model.gives_address(each)
        case "start":
            for each in list(model.pods):
                model.starts(each)
        case "exit" if "-ps-" not in name:
            model.exits(name, 0)
        case "fail":
            model.exits(name, (1, 134, 250, 139)[choice % 4])
        case "vanish":
            del model.pods[name]
        case "delete":
            model.pods[name] = msgspec.structs.replace(model.pods[name], terminating=True)
        case "move":
            model.moves(name)


def agree(model: Model) -> bool:
    """All ranks of a job that runs have read the same lists, and the lists are true."""
    spec = model.job.spec
    if spec is None or spec.is_elastic or model.status.phase != "Running":
        return True
    read = {model.started_with[pod.uid] for pod in model.pods.values() if pod.uid in model.started_with}
    return len(read) <= 1


def all_run(model: Model) -> None:
    """The kubelets do their work, the operator its."""
    model.settle()
    for name in list(model.pods):
        model.gives_address(name)
    model.settle()
    for name in list(model.pods):
        model.starts(name)
    model.settle()
    assert agree(model)


def lives_on(model: Model) -> None:
    """Workers succeed, and nothing bad happens any more."""
    assert model.job.spec
    for _ in range(4):
        all_run(model)
        for name in list(model.pods):
            if "-ps-" not in name or model.job.spec.worker is None:
                model.exits(name, 0)
    model.settle()


@settings(quick, max_examples=150)
@given(jobs(stored=False), st.lists(st.tuples(ACTIONS, st.integers(0, 50)), min_size=5, max_size=25))
def test_a_life_in_which_anything_happens_ends_once_nothing_more_does(
    job: Job, happenings: list[tuple[str, int]]
) -> None:
    model = Model(job, Children(), T0, Surroundings("10.0.0.9:2379", 35020))
    for action, choice in happenings:
        acts(model, action, choice)
    lives_on(model)
    note(str(model.phases))
    assert model.status.phase in ("Completed", "Failed")
    if "fail" not in [action for action, _ in happenings]:
        assert model.status.phase == "Completed"
    for step in zip(model.phases, model.phases[1:], strict=False):
        assert step in EDGES
    assert not [pod for pod in model.pods.values() if not pod.finished]  # nobody holds a GPU any more
    assert job.spec
    assert not (job.spec.cleans(model.status.phase) and model.pods)
    assert (
        model.status.start_time is None
        or model.status.completion_time is None
        or (model.status.start_time <= model.status.completion_time)
    )
