"""What the user asked for stays as asked, and a condition says what will come of it."""

from typing import Any

import pytest

from paddle_operator.plan.job_view import Job
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    ETCD,
    SECONDS,
    T0,
    creates,
    get_condition,
    make_job,
    make_running_children,
    make_template,
    reasons,
    with_spec,
    with_status,
)


def setting(*names: str, **told: Any) -> Job:
    env = [{"name": name, "value": "mine"} for name in names]
    return make_job(**{"workers": 2} | told, template=make_template({"env": env}))


def conditions(job: Job) -> list[str]:
    return [each.type for each in plan(job, make_running_children(job), T0).status.conditions]


DECISIVE = [
    *("POD_IP", "TRAINING_ROLE", "PADDLE_TRAINING_ROLE", "PADDLE_TRAINER_ID", "PADDLE_RANK", "PADDLE_TRAINERS_NUM"),
    *("PADDLE_NNODES", "PADDLE_PORT", "PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINERS_ENDPOINTS"),
    *("DISTRIBUTED_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT", "PADDLE_PSERVERS_IP_PORT_LIST"),
    *("PADDLE_SERVERS_ENDPOINTS", "PADDLE_GLOO_HTTP_ENDPOINT"),
]


@pytest.mark.parametrize("name", DECISIVE)
def test_user_set_rendezvous_variable_is_warned_of(name: str) -> None:
    job = setting(name)
    desired = plan(job, make_running_children(job), T0)
    found = get_condition(desired.status, "RendezvousAtRisk")
    assert (found.status, found.reason) == ("True", "UserVariables")
    assert found.message == (
        f"spec.worker.template sets {name}: ranks may not find each other; remove them, the operator sets them"
    )
    assert [(each.reason, each.warning) for each in desired.events if each.reason == "UserVariables"] == [
        ("UserVariables", True)
    ]
    assert reasons(plan(with_status(job, desired.status), make_running_children(job), T0 + 9 * SECONDS)) == []


def test_every_role_that_sets_one_is_named() -> None:
    job = setting("PADDLE_PORT", "POD_IP", ps=1)
    message = get_condition(plan(job, make_running_children(job), T0).status, "RendezvousAtRisk").message
    assert message.startswith(
        "spec.ps.template sets PADDLE_PORT, POD_IP; spec.worker.template sets PADDLE_PORT, POD_IP: "
    )


@pytest.mark.parametrize("name", ["MINE", "FLAGS_enable_pir_api", "PADDLE_DISTRI_BACKEND", "PADDLE_LOG_DIR"])
def test_any_other_variable_is_the_users_business(name: str) -> None:
    assert conditions(setting(name)) == ["Accepted", "Running"]


def test_a_risk_that_is_gone_is_told_as_gone_and_is_no_news() -> None:
    job = setting("POD_IP")
    first = plan(job, make_running_children(job), T0).status
    mended = with_status(make_job(workers=2), first)
    desired = plan(mended, make_running_children(mended), T0 + 9 * SECONDS)
    assert get_condition(desired.status, "RendezvousAtRisk").status == "False"
    assert reasons(desired) == []


def test_restart_policy_always_on_workers_is_warned_of() -> None:
    job = make_job(workers=2, template=make_template(restartPolicy="Always"))
    found = get_condition(plan(job, make_running_children(job), T0).status, "CompletionAtRisk")
    assert (found.status, found.reason) == ("True", "RestartsAlways")
    assert found.message == (
        "spec.worker.template.spec.restartPolicy is Always: its pods never succeed, and the job is never completed; "
        "set OnFailure or Never"
    )


def test_restart_policy_always_on_servers_is_fine() -> None:
    job = make_job(ps=1, workers=1)
    assert job.spec
    assert job.spec.ps
    servers = type(job.spec.ps)(1, make_template(restartPolicy="Always"))
    assert conditions(with_spec(job, ps=servers)) == ["Accepted", "Running"]


def test_elastic_workers_get_restart_policy_on_failure() -> None:
    job = make_job(workers=2, elastic=1, template=make_template(restartPolicy="Always"))
    desired = plan(job, make_running_children(make_job(workers=2)), T0, ETCD)
    assert [each.type for each in desired.status.conditions] == ["Accepted", "Running"]
    assert creates(desired) == []
