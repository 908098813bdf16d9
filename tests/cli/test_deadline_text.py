"""What is ahead of a job, in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddle_operator.api.paddlejob import Condition, PaddleJobSpec, PaddleJobStatus, Phase, RoleSpec
from paddle_operator.cli.deadline_text import end_told, expiry_told, facts_ahead, tries_told
from paddle_operator.kube.objects import Meta
from paddle_operator.plan.children import Job

T0 = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def a_job(phase: str = Phase.RUNNING, status: dict[str, Any] | None = None, **spec: Any) -> Job:
    """One that was taken on at T0."""
    accepted = Condition("Accepted", "True", "SpecValid", "the spec keeps the rules", 1, T0)
    worker = RoleSpec(2, {"spec": {"containers": [{"name": "paddle"}]}})
    meta = Meta(name="mnist", namespace="default", uid="1", resource_version="1", creation_timestamp=T0)
    told = PaddleJobStatus(phase=phase, conditions=(accepted,), **(status or {}))
    return Job(meta, PaddleJobSpec(worker=worker, **spec), told)


def test_a_job_without_policies_has_nothing_ahead() -> None:
    assert set(facts_ahead(a_job(), (), T0).values()) == {""}
    assert (tries_told(a_job(), T0), end_told(a_job(), T0), expiry_told(a_job(), T0)) == ("", "", "")


def test_tries_are_told_with_the_limit_and_the_time_of_the_next() -> None:
    job = a_job(Phase.RESTARTING, {"restarts": 1, "next_attempt_time": T0 + 10 * SECOND}, backoff_limit=3)
    assert tries_told(job, T0) == "tries used: 1 of 3, next at 12:00:10 UTC"
    assert tries_told(job, T0 + 10 * SECOND) == "tries used: 1 of 3"
    assert facts_ahead(job, (), T0 + 3 * SECOND)["Tries"] == "1 of 3 used, next at 12:00:10 UTC (in 7s)"


def test_a_limit_is_shown_on_the_page_before_it_is_needed() -> None:
    assert facts_ahead(a_job(backoff_limit=3), (), T0)["Tries"] == "0 of 3 used"
    assert tries_told(a_job(backoff_limit=3), T0) == ""


def test_a_deadline_is_told_as_a_time_and_how_far_it_is() -> None:
    job = a_job(active_deadline_seconds=600)
    assert end_told(job, T0) == "ends at 12:10:00 UTC"
    told = facts_ahead(job, (), T0 + 15 * SECOND)["Deadline"]
    assert told == "ends at 12:10:00 UTC (in 9m45s): spec.activeDeadlineSeconds is 600"


def test_a_deadline_on_another_day_is_told_with_the_day() -> None:
    assert end_told(a_job(active_deadline_seconds=3 * 86400), T0) == "ends at 2026-01-05 12:00:00 UTC"


def test_while_a_job_is_suspended_its_deadline_stands_still() -> None:
    job = a_job(Phase.SUSPENDED, {"active_seconds": 125}, active_deadline_seconds=600, suspend=True)
    told = facts_ahead(job, (), T0 + timedelta(days=3))["Deadline"]
    assert told == "475 of 600 s are left; while the job is suspended, no time passes"
    assert end_told(job, T0) == ""


def test_after_a_resume_the_deadline_counts_what_was_used_before() -> None:
    status = {"active_seconds": 125, "active_since": T0 + 3600 * SECOND}
    assert end_told(a_job(status=status, active_deadline_seconds=600), T0 + 3600 * SECOND) == "ends at 13:07:55 UTC"


def test_the_deadline_of_the_start_is_told_until_all_pods_have_started() -> None:
    job = a_job(Phase.PENDING, start_deadline_seconds=30)
    told = facts_ahead(job, (), T0 + 5 * SECOND)["Start by"]
    assert told == "12:00:30 UTC (in 25s), or it fails: spec.startDeadlineSeconds is 30"


def test_of_a_finished_job_only_its_own_deletion_is_ahead() -> None:
    policies = {"active_deadline_seconds": 600, "start_deadline_seconds": 30, "ttl_seconds_after_finished": 60}
    job = a_job(Phase.COMPLETED, {"completion_time": T0 + 20 * SECOND}, **policies)
    facts = facts_ahead(job, (), T0 + 50 * SECOND)
    assert {name for name, told in facts.items() if told} == {"Kept until"}
    assert facts["Kept until"] == "is deleted at 12:01:20 UTC (in 30s): spec.ttlSecondsAfterFinished is 60"


@pytest.mark.parametrize("ttl", [0, 60])
def test_before_the_end_it_is_told_how_long_after_it_a_job_is_deleted(ttl: int) -> None:
    told = expiry_told(a_job(ttl_seconds_after_finished=ttl), T0)
    assert told == f"is deleted {ttl} s after its end: spec.ttlSecondsAfterFinished"


def test_a_job_that_breaks_the_rules_has_nothing_ahead() -> None:
    job = Job(Meta(name="mnist"), None, PaddleJobStatus(), ("spec is without a role",))
    assert facts_ahead(job, (), T0) == {}
    assert (tries_told(job, T0), end_told(job, T0), expiry_told(job, T0)) == ("", "", "")
