from typing import Any

import pytest

from paddle_operator.api.paddlejob import InvalidSpec
from paddle_operator.api.paddlejob_policy_rules import IMMUTABLE_FIELDS
from paddle_operator.api.paddlejob_rules import NAME_RULES, SPEC_RULES
from paddle_operator.api.rules import Rule, value_at
from tests.api.jobs import a_role, make_template, read
from tests.api.transitions import TRANSITIONS, Transition
from tests.api.wrong_jobs import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_wrong_job_is_told_by_field_value_and_fix(case: Case) -> None:
    assert told_of(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_right_job_is_not_refused(case: Case) -> None:
    read(case.right, case.right_name)


def test_every_rule_has_a_wrong_job() -> None:
    told = [told_of(case) for case in CASES]
    rules: tuple[Rule[Any], ...] = (*NAME_RULES, *SPEC_RULES)
    for rule in rules:
        about, fix = rule.message.split(rule.value_format)
        assert any(sentence.startswith(about) and sentence.endswith(fix) for sentence in told), rule.message


def told_of(case: Case) -> str:
    """The sentence that the case is about; there may be others where one mistake breaks two rules."""
    with pytest.raises(InvalidSpec) as unfit:
        read(case.wrong, case.wrong_name)
    (found,) = [sentence for sentence in unfit.value.problems if sentence.startswith(case.sentence)]
    return found


@pytest.mark.parametrize("transition", TRANSITIONS, ids=str)
def test_immutable_fields_report_the_fix(transition: Transition) -> None:
    old, new = read(transition.stored), read(transition.after)
    told = [sentence for each in IMMUTABLE_FIELDS if (sentence := each.describe_violation(new, old))]
    assert told == ([transition.refused] if transition.refused else [])


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as unfit:
        read({"withGloo": 9, "worker": a_role(0, requests=1, template={})}, "9")
    assert [sentence.partition(" is ")[0] for sentence in unfit.value.problems] == [
        "metadata.name",
        "spec.worker.replicas",
        "spec.worker.requests",
        "spec.withGloo",
        "spec.worker.template.spec.containers",
    ]


def test_the_ports_of_init_containers_are_looked_at() -> None:
    template = make_template()
    template["spec"]["initContainers"] = [{"name": "first", "ports": [{"containerPort": 0}]}]
    with pytest.raises(
        InvalidSpec, match=r"initContainers\[0\].ports\[0\].containerPort is 0, but must be from 1 to 65535"
    ):
        read({"worker": a_role(template=template)})


@pytest.mark.parametrize(
    "template",
    [{"spec": None}, {"spec": []}, {"spec": {"containers": "x"}}, {"spec": {"containers": [1]}}],
    ids=str,
)
def test_a_template_of_any_shape_is_a_problem_and_no_crash(template: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.worker\.template\.spec\.containers is empty"):
        read({"worker": a_role(template=template)})


def test_stored_template_is_validated_again() -> None:
    container = {"name": "a", "env": None, "tty": 1, "ports": ["x", {"containerPort": "http"}, {"hostPort": None}]}
    template = {"metadata": {"labels": {"a": 5}}, "spec": {"containers": [container], "initContainers": "x"}}
    with pytest.raises(InvalidSpec) as unfit:
        read({"worker": a_role(template=template)})
    assert unfit.value.problems == (
        "spec.worker.template.metadata.labels.a is 5, but must be a text",
        "spec.worker.template.spec.containers[0].tty is 1, but must be true or false",
        'spec.worker.template.spec.containers[0].ports[0] is "x", but must be a map of fields',
        'spec.worker.template.spec.containers[0].ports[1].containerPort is "http", but must be a whole number',
        "spec.worker.template.spec.containers[0].ports[2].containerPort is not set, but is needed: add it",
        'spec.worker.template.spec.initContainers is "x", but must be a list',
    )


def test_template_accepts_unknown_fields_and_1_0() -> None:
    container = {"name": "a", "newInThisYear": [5], "ports": [{"containerPort": 80.0}]}
    read({"worker": a_role(template={"spec": {"containers": [container], "activeDeadlineSeconds": None}})})


def test_a_field_is_found_by_the_path_that_users_write() -> None:
    spec = read({"worker": a_role(3), "schedulingPolicy": {"minAvailable": 2}})
    assert value_at(spec, "spec.worker.replicas") == 3
    assert value_at(spec, "spec.schedulingPolicy.minAvailable") == 2
    assert value_at(spec, "spec.heter.replicas") is None
