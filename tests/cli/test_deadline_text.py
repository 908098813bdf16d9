"""Retries, deadlines and expiry of a job as text."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddle_operator.api.paddlejob import Condition, PaddleJobSpec, PaddleJobStatus, Phase, RoleSpec
from paddle_operator.cli.deadline_text import format_deadline, format_expiry, format_retries, upcoming_deadlines
from paddle_operator.kube.objects import Meta
from paddle_operator.plan.job_view import Job

T0 = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def make_job(phase: str = Phase.RUNNING, status: dict[str, Any] | None = None, **spec: Any) -> Job:
    """A job that was accepted at T0."""
    accepted = Condition("Accepted", "True", "SpecValid", "the spec is valid", 1, T0)
    worker = RoleSpec(2, {"spec": {"containers": [{"name": "paddle"}]}})
    meta = Meta(name="mnist", namespace="default", uid="1", resource_version="1", creation_timestamp=T0)
    stored = PaddleJobStatus(phase=phase, conditions=(accepted,), **(status or {}))
    return Job(meta, PaddleJobSpec(worker=worker, **spec), stored)


def test_job_without_policies_has_no_lines() -> None:
    assert set(upcoming_deadlines(make_job(), (), T0).values()) == {""}
    assert (format_retries(make_job(), T0), format_deadline(make_job(), T0), format_expiry(make_job(), T0)) == (
        "",
        "",
        "",
    )


def test_retries_have_the_limit_and_the_next_time() -> None:
    job = make_job(Phase.RESTARTING, {"restarts": 1, "next_attempt_time": T0 + 10 * SECOND}, backoff_limit=3)
    assert format_retries(job, T0) == "retries used: 1 of 3, next at 12:00:10 UTC"
    assert format_retries(job, T0 + 10 * SECOND) == "retries used: 1 of 3"
    assert upcoming_deadlines(job, (), T0 + 3 * SECOND)["Retries"] == "1 of 3 used, next at 12:00:10 UTC (in 7s)"


def test_page_shows_an_unused_limit() -> None:
    assert upcoming_deadlines(make_job(backoff_limit=3), (), T0)["Retries"] == "0 of 3 used"
    assert format_retries(make_job(backoff_limit=3), T0) == ""


def test_deadline_has_time_and_distance() -> None:
    job = make_job(active_deadline_seconds=600)
    assert format_deadline(job, T0) == "ends at 12:10:00 UTC"
    text = upcoming_deadlines(job, (), T0 + 15 * SECOND)["Deadline"]
    assert text == "ends at 12:10:00 UTC (in 9m45s): spec.activeDeadlineSeconds is 600"


def test_distant_deadline_has_the_date() -> None:
    assert format_deadline(make_job(active_deadline_seconds=3 * 86400), T0) == "ends at 2026-01-05 12:00:00 UTC"


def test_deadline_is_paused_while_suspended() -> None:
    job = make_job(Phase.SUSPENDED, {"active_seconds": 125}, active_deadline_seconds=600, suspend=True)
    text = upcoming_deadlines(job, (), T0 + timedelta(days=3))["Deadline"]
    assert text == "475 of 600 s left; the deadline is paused while the job is suspended"
    assert format_deadline(job, T0) == ""


def test_resumed_deadline_counts_earlier_active_time() -> None:
    status = {"active_seconds": 125, "active_since": T0 + 3600 * SECOND}
    assert (
        format_deadline(make_job(status=status, active_deadline_seconds=600), T0 + 3600 * SECOND)
        == "ends at 13:07:55 UTC"
    )


def test_start_deadline_is_shown_until_all_pods_start() -> None:
    job = make_job(Phase.PENDING, start_deadline_seconds=30)
    text = upcoming_deadlines(job, (), T0 + 5 * SECOND)["Start by"]
    assert text == "12:00:30 UTC (in 25s), or it fails: spec.startDeadlineSeconds is 30"


def test_finished_job_has_only_an_expiry() -> None:
    policies = {"active_deadline_seconds": 600, "start_deadline_seconds": 30, "ttl_seconds_after_finished": 60}
    job = make_job(Phase.COMPLETED, {"completion_time": T0 + 20 * SECOND}, **policies)
    facts = upcoming_deadlines(job, (), T0 + 50 * SECOND)
    assert {name for name, text in facts.items() if text} == {"Expiry"}
    assert facts["Expiry"] == "is deleted at 12:01:20 UTC (in 30s): spec.ttlSecondsAfterFinished is 60"


@pytest.mark.parametrize("ttl", [0, 60])
def test_unfinished_job_shows_its_ttl(ttl: int) -> None:
    text = format_expiry(make_job(ttl_seconds_after_finished=ttl), T0)
    assert text == f"is deleted {ttl} s after it finishes: spec.ttlSecondsAfterFinished"


def test_invalid_job_has_no_lines() -> None:
    job = Job(Meta(name="mnist"), None, PaddleJobStatus(), ("spec is without a role",))
    assert upcoming_deadlines(job, (), T0) == {}
    assert (format_retries(job, T0), format_deadline(job, T0), format_expiry(job, T0)) == ("", "", "")
