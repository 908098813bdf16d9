from datetime import UTC, datetime

import msgspec
import pytest

from paddle_operator.api.paddlejob import (
    Condition,
    InvalidSpec,
    PaddleJobStatus,
    Reference,
    RoleStatus,
    read_spec,
    read_status,
)
from tests.api.jobs import a_role, read

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def test_every_mistake_in_the_types_is_told() -> None:
    wrong = {
        "intranet": 1,
        "withGloo": True,
        "schedulingPolicy": {"minAvailable": 1.5, "queue": [], "minResources": {"cpu": []}},
        "ps": "two",
        "worker": {"replicas": "2", "template": []},
    }
    with pytest.raises(InvalidSpec) as unfit:
        read(wrong)
    assert list(unfit.value.problems) == [
        "spec.intranet is 1, but must be PodIP, Service or Host",
        "spec.withGloo is true, but must be a whole number",
        "spec.schedulingPolicy.minAvailable is 1.5, but must be a whole number",
        "spec.schedulingPolicy.queue is [], but must be a text",
        'spec.schedulingPolicy.minResources is {"cpu":[]}, but must be a map of fields',
        'spec.ps is "two", but must be a map of fields',
        'spec.worker.replicas is "2", but must be a whole number',
        "spec.worker.template is [], but must be a map of fields",
    ]
    assert str(unfit.value).count("; ") == 7


def test_a_long_value_is_cut_in_the_sentence() -> None:
    with pytest.raises(InvalidSpec) as unfit:
        read({"intranet": "x" * 1000})
    assert len(unfit.value.problems[0]) < 200


def test_a_null_is_as_if_it_were_not_there() -> None:
    assert read({"intranet": None, "ps": None, "worker": a_role(requests=None)}) == read({"worker": a_role()})


@pytest.mark.parametrize("raw", [b"null", b"{}", b"[]", b'"x"', b"1"])
def test_a_spec_of_any_shape_is_a_problem_and_no_crash(raw: bytes) -> None:
    with pytest.raises(InvalidSpec):
        read_spec(raw)


def test_without_a_name_only_the_spec_is_looked_at() -> None:
    read({"worker": a_role()})
    with pytest.raises(InvalidSpec, match=r"metadata\.name"):
        read({"worker": a_role()}, "")


def test_a_status_is_written_and_read_back() -> None:
    status = PaddleJobStatus(
        phase="Running",
        mode="PS",
        ready="3/4",
        ps=RoleStatus(replicas=1, running=1, refs=(Reference("mnist-ps-0", "default", "1-2-3"),)),
        conditions=(Condition("Ready", "True", "AllPodsRunning", "3 of 3 pods run", 2, T0),),
        start_time=T0,
        host_port=35000,
        attempt=1,
    )
    assert read_status(msgspec.json.encode(status)) == status


def test_what_has_nothing_to_tell_is_not_written() -> None:
    written = msgspec.to_builtins(PaddleJobStatus(phase="Pending", worker=RoleStatus(pending=2)))
    assert written == {"phase": "Pending", "worker": {"pending": 2}}
    assert msgspec.to_builtins(Reference("a", "b", "c")) == {
        "name": "a",
        "namespace": "b",
        "uid": "c",
        "kind": "Pod",
        "apiVersion": "v1",
    }


def test_what_the_go_operator_wrote_is_read() -> None:
    ref = {
        "kind": "Pod",
        "namespace": "paddle-system",
        "name": "simple-worker-0",
        "uid": "d1",
        "apiVersion": "v1",
        "resourceVersion": "91",
    }
    written = {
        "phase": "Running",
        "mode": "Collective",
        "worker": {"running": 2, "refs": [ref]},
        "startTime": "2023-05-19T08:00:00Z",
    }
    status = read_status(msgspec.json.encode(written))
    assert status.phase == "Running"
    assert status.worker == RoleStatus(running=2, refs=(Reference("simple-worker-0", "paddle-system", "d1"),))
    assert list(status.roles) == ["worker"]
    assert status.start_time == datetime(2023, 5, 19, 8, tzinfo=UTC)


def test_unreadable_status_fields_are_dropped() -> None:
    written = {
        "phase": "Scaling",
        "mode": "Custom",
        "ready": 3,
        "ps": "gone",
        "worker": {
            "running": "two",
            "pending": 1,
            "refs": [{"name": "half"}, {"name": "a", "namespace": "b", "uid": "c"}],
        },
        "conditions": [{"type": "Ready"}, 7],
        "startTime": "yesterday",
        "attempt": None,
        "observedGeneration": 4,
    }
    assert read_status(msgspec.json.encode(written)) == PaddleJobStatus(
        worker=RoleStatus(pending=1, refs=(Reference("a", "b", "c"),)), observed_generation=4
    )


@pytest.mark.parametrize("raw", [b"null", b"{}", b"[]", b'"x"', b"1"])
def test_a_status_of_any_shape_is_read(raw: bytes) -> None:
    assert read_status(raw) == PaddleJobStatus()
