"""Which events belong to a job."""

from paddle_operator.cli.events import is_about, is_older


def test_events_of_children_belong_to_the_job() -> None:
    def about(kind: str, name: str) -> bool:
        return is_about({"regarding": {"kind": kind, "name": name}}, "mnist")

    assert about("PaddleJob", "mnist")
    assert about("Pod", "mnist-worker-0")
    assert not about("PaddleJob", "mnist-2")
    assert not about("Pod", "mnistic-worker-0")


def test_events_of_an_earlier_job_of_the_name_are_left_out() -> None:
    event = {"regarding": {"kind": "PaddleJob", "name": "mnist", "uid": "1"}}
    assert is_about(event, "mnist", uid="1")
    assert not is_about(event, "mnist", uid="2")


def test_event_in_the_second_of_the_creation_is_not_older() -> None:
    assert not is_older({"eventTime": "2026-05-04T12:00:01.200000Z"}, "2026-05-04T12:00:01Z")
    assert is_older({"eventTime": "2026-05-04T12:00:00.900000Z"}, "2026-05-04T12:00:01Z")
    assert not is_older({}, "2026-05-04T12:00:01Z")
