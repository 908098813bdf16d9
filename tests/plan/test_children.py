"""When must a pod that is being deleted have terminated? By our own clock, whatever the API server's says."""

from datetime import datetime, timedelta

import msgspec
import pytest

from paddle_operator.kube.objects import Meta, Pod
from paddle_operator.plan.children import PodView, terminating_pod_view
from tests.support.jobs import SECONDS, T0


def terminates_by(now: datetime, known: PodView | None = None, *, grace: int = 30, uid: str = "p") -> datetime:
    view = left(now, known, grace=grace, uid=uid)
    assert view.terminating
    assert view.terminates_by
    return view.terminates_by


def left(now: datetime, known: PodView | None = None, *, grace: int = 30, uid: str = "p") -> PodView:
    """A pod that somebody asked the API server to delete at T0 by its clock, as it is seen now."""
    until = T0 + grace * SECONDS
    meta = Meta("a", "ns", uid, "1", deletion_timestamp=until, deletion_grace_period_seconds=grace)
    return terminating_pod_view(Pod(meta), known, now)


@pytest.mark.parametrize("ahead", [0, 60, 86400])
def test_clock_ahead_keeps_the_grace_period(ahead: int) -> None:
    assert terminates_by(T0 + ahead * SECONDS) == T0 + (ahead + 30) * SECONDS


def test_by_a_clock_that_is_behind_the_api_servers_word_counts() -> None:
    assert terminates_by(T0 - 60 * SECONDS) == T0 + 30 * SECONDS


def test_what_is_heard_of_it_later_does_not_give_it_more_time() -> None:
    known = left(T0 + 100 * SECONDS)
    assert terminates_by(T0 + 120 * SECONDS, known) == T0 + 130 * SECONDS


def test_a_grace_that_was_cut_short_is() -> None:
    known = left(T0, grace=3600)
    assert terminates_by(T0 + 10 * SECONDS, known, grace=5) == T0 + 15 * SECONDS


def test_force_delete_is_not_repeated_at_once() -> None:
    """A finalizer holds it, and another delete would change nothing but be told once more."""
    known = left(T0)
    assert left(T0 + 90 * SECONDS, known, grace=0).terminates_by is None


def test_another_pod_of_its_name_has_a_time_of_its_own() -> None:
    known = left(T0)
    assert terminates_by(T0 + timedelta(hours=1), known, uid="q") == T0 + timedelta(hours=1, seconds=30)


def test_own_delete_sets_the_termination_time() -> None:
    known = msgspec.structs.replace(left(T0), terminates_by=None)
    assert terminates_by(T0 + 100 * SECONDS, known) == T0 + 130 * SECONDS
