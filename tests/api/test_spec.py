import pytest

from paddle_operator.api.paddlejob import CleanPodPolicy, Intranet, Mode, Phase, Role
from tests.api.jobs import Written, a_role, read

WORKERS = {"worker": a_role(2)}
PS = {"ps": a_role(1), "worker": a_role(2)}


def test_what_is_left_out_has_the_documents_defaults() -> None:
    spec = read(WORKERS)
    assert spec.intranet is Intranet.POD_IP
    assert spec.clean_pod_policy is None
    assert (spec.with_gloo, spec.elastic, spec.scheduling_policy) == (None, None, None)


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        (PS, Mode.PS),
        ({"ps": a_role(1)}, Mode.PS),
        ({"worker": a_role(2)}, Mode.COLLECTIVE),
        ({"worker": a_role(1)}, Mode.SINGLE),
        ({"heter": a_role(3)}, Mode.SINGLE),
        ({"worker": a_role(2), "heter": a_role(1)}, Mode.COLLECTIVE),
    ],
)
def test_the_mode_follows_from_the_roles(written: Written, mode: Mode) -> None:
    assert read(written).mode is mode


def test_gloo_is_on_for_parameter_servers_unless_put_off() -> None:
    assert read(PS).gloo == 1
    assert read(PS | {"withGloo": 0}).gloo == 0
    assert read(PS | {"withGloo": 2}).gloo == 2
    assert read(WORKERS).gloo == 0
    assert read(WORKERS | {"withGloo": 1}).gloo == 1


def test_roles_come_in_order_and_are_counted() -> None:
    spec = read({"heter": a_role(3), "worker": a_role(2), "ps": a_role(1)})
    assert list(spec.roles) == [Role.PS, Role.WORKER, Role.HETER]
    assert [role.replicas for role in spec.roles.values()] == [1, 2, 3]
    assert spec.total == 6
    assert list(read(WORKERS).roles) == [Role.WORKER]


@pytest.mark.parametrize(
    ("policy", "on_failed", "on_completed"),
    [
        (None, False, True),
        ("Always", True, True),
        ("OnFailure", True, False),
        ("OnFailed", True, False),
        ("OnCompletion", False, True),
        ("Never", False, False),
    ],
)
def test_pods_are_cleaned_as_the_policy_says(policy: str | None, on_failed: bool, on_completed: bool) -> None:
    spec = read(WORKERS | ({} if policy is None else {"cleanPodPolicy": policy}))
    assert spec.cleans(Phase.FAILED) is on_failed
    assert spec.cleans(Phase.COMPLETED) is on_completed
    assert not any(spec.cleans(phase) for phase in Phase if phase not in (Phase.FAILED, Phase.COMPLETED))


def test_clean_policy_counts_unless_both_are_set() -> None:
    assert read(WORKERS | {"cleanPolicy": "Never"}).clean_pod_policy is CleanPodPolicy.NEVER
    both = {"cleanPolicy": "Never", "cleanPodPolicy": "Always"}
    assert read(WORKERS | both).clean_pod_policy is CleanPodPolicy.ALWAYS


@pytest.mark.parametrize(("elastic", "is_elastic"), [(None, False), (0, False), (1, True)])
def test_only_a_number_above_zero_makes_a_job_elastic(elastic: int | None, is_elastic: bool) -> None:
    assert read(WORKERS | {"elastic": elastic}).is_elastic is is_elastic


def test_a_template_is_kept_as_it_was_written() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "a", "resources": {"limits": {"cpu": 0.5, "nvidia.com/gpu": 1, "memory": "1Gi"}}}],
            "aFieldOfTomorrow": [None, True, {"x": 1.25}],
        },
    }
    assert read({"worker": a_role(template=template)}).roles[Role.WORKER].template == template
