"""Policies together: every product of them in one life with an oracle, and stories in which they meet."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

from tests.support.jobs import ETCD, SECONDS, T0, JSONObject, get_condition, make_job
from tests.support.model import Model, start_scenario

CHIEF = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
TTL = 20
SUSPENDED_FOR = 1000

# One life, in all its products: two workers run; after 100 s one fails; 5 s later, perhaps, the job is suspended for a
# long while; once all run again, the chief succeeds after 30 s and the other after 60.


@dataclass(frozen=True)
class Policies:
    limit: int | None
    deadline: int | None
    suspends: bool
    clean: str | None
    chief: bool

    def __str__(self) -> str:
        words = [f"limit {self.limit}", f"deadline {self.deadline}", f"clean {self.clean}"]
        return ", ".join([*words, *(["suspended"] if self.suspends else []), *(["chief"] if self.chief else [])])

    @property
    def written(self) -> JSONObject:
        named = {"backoffLimit": self.limit, "activeDeadlineSeconds": self.deadline, "ttlSecondsAfterFinished": TTL}
        return {key: value for key, value in named.items() if value is not None} | (CHIEF if self.chief else {})

    @property
    def end(self) -> tuple[str, str, int]:
        """The phase, the reason and the second of its end, by hand."""
        if not self.limit:
            return "Failed", "PodFailed" if self.limit is None else "BackoffLimitExceeded", 100
        runs_again, active = (105 + SUSPENDED_FOR, 105) if self.suspends else (110, 110)
        done = runs_again + (30 if self.chief else 60)
        late = runs_again + self.deadline - active if self.deadline else None
        if late and late <= done:
            return "Failed", "DeadlineExceeded", late
        return "Completed", "WorkersSucceeded", done

    @property
    def keeps(self) -> bool:
        """Whether the pods stay after the end."""
        kept_after = {"Completed": ("Never", "OnFailure"), "Failed": ("Never", "OnCompletion", None)}
        return self.clean in kept_after[self.end[0]]


EVERY = [
    Policies(*each)
    for each in product(
        (None, 0, 1, 3),
        (None, 150, 100_000),
        (False, True),
        (None, "Always", "Never", "OnFailure", "OnCompletion"),
        (False, True),
    )
]


@pytest.mark.parametrize("policies", EVERY, ids=str)
def test_every_policy_keeps_its_word_whatever_the_others_say(policies: Policies) -> None:
    life = start_scenario(make_job(workers=2, clean=policies.clean, policies=policies.written))
    life.advance(100)
    life.exit_pod("mnist-worker-1", 1)
    life.advance(5)
    if policies.suspends:
        life.update_spec(suspend=True)
        life.advance(SUSPENDED_FOR)
        life.update_spec(suspend=False)
    else:
        life.advance(5)
    life.run_all_pods()
    for name in ("mnist-worker-0", "mnist-worker-1"):
        life.advance(30)
        if not life.job.finished and name in life.pods:
            life.exit_pod(name, 0)
            life.reconcile_until_idle()
    phase, reason, second = policies.end
    assert (life.status.phase, get_condition(life.status, phase).reason) == (phase, reason)
    assert life.status.completion_time == T0 + second * SECONDS
    assert life.status.restarts == (1 if policies.limit else 0)
    if life.deleted_at is None:  # those that ended early are gone by now
        assert (len(life.pods) == 2) is policies.keeps
        assert not [pod for pod in life.pods.values() if not pod.finished]
        life.advance(TTL)
    assert life.deleted_at == T0 + (second + TTL) * SECONDS


# Stories: what happens, and what is then true

Step = Callable[[Model], None]


def after(seconds: float) -> Step:
    return lambda life: life.advance(seconds)


def runs(life: Model) -> None:
    life.run_all_pods()


def fails(index: int, code: int = 1, *, disrupted: bool = False) -> Step:
    def step(life: Model) -> None:
        life.exit_pod(f"mnist-worker-{index}", code, disrupted=disrupted)
        life.reconcile_until_idle()

    return step


def succeeds(*indexes: int) -> Step:
    def step(life: Model) -> None:
        for index in indexes:
            life.exit_pod(f"mnist-worker-{index}", 0)
        life.reconcile_until_idle()

    return step


def suspends(life: Model) -> None:
    life.update_spec(suspend=True)
    life.reconcile_until_idle()


def resumes(life: Model) -> None:
    life.update_spec(suspend=False)
    life.reconcile_until_idle()


def vanishes(index: int) -> Step:
    def step(life: Model) -> None:
        life.delete_pod(f"mnist-worker-{index}")
        life.reconcile_until_idle()

    return step


def away(seconds: float) -> Step:
    """No operator is there."""

    def step(life: Model) -> None:
        life.now += seconds * SECONDS

    return step


@dataclass(frozen=True)
class Story:
    """A sentence, the policies, what happens; then the phase, the reason of the end, and the tries that are used up."""

    sentence: str
    policies: JSONObject
    steps: tuple[Step, ...]
    phase: str
    reason: str = ""
    restarts: int = 0
    attempt: int = 0
    shape: JSONObject | None = None

    def __str__(self) -> str:
        return self.sentence


STORIES = [
    Story(
        "a deadline stops while the job is suspended and goes on with what is left",
        {"activeDeadlineSeconds": 100},
        (after(60), suspends, after(9999), resumes, runs, after(39)),
        "Running",
        attempt=1,
    ),
    Story(
        "and then it fires at its time",
        {"activeDeadlineSeconds": 100},
        (after(60), suspends, after(9999), resumes, runs, after(40)),
        "Failed",
        "DeadlineExceeded",
        attempt=1,
    ),
    Story(
        "while a job is suspended no deadline fires however long ago it was",
        {"activeDeadlineSeconds": 100, "startDeadlineSeconds": 5},
        (after(60), suspends, after(99999)),
        "Suspended",
        attempt=1,
    ),
    Story(
        "a deadline that passed before anybody saw the suspension ends the job when it is resumed",
        {"activeDeadlineSeconds": 100},
        (away(500), suspends, resumes),
        "Failed",
        "DeadlineExceeded",
        attempt=1,
    ),
    Story(
        "a resumed job has the time of a start again",
        {"startDeadlineSeconds": 30},
        (after(100), suspends, after(500), resumes, after(29)),
        "Pending",
        attempt=1,
    ),
    Story(
        "and fails if it is not enough",
        {"startDeadlineSeconds": 30},
        (after(100), suspends, after(500), resumes, after(30)),
        "Failed",
        "StartDeadlineExceeded",
        attempt=1,
    ),
    Story(
        "a job that was suspended in a pause is tried at once when it is resumed",
        {"backoffLimit": 2},
        (fails(0), after(3), suspends, after(500), resumes, runs),
        "Running",
        restarts=1,
        attempt=1,
    ),
    Story(
        "a failure after a resume is counted with those before it",
        {"backoffLimit": 1},
        (fails(0), after(10), runs, suspends, resumes, runs, fails(0)),
        "Failed",
        "BackoffLimitExceeded",
        restarts=1,
        attempt=2,
    ),
    Story(
        "preemption and failures together: only the failures count",
        {"backoffLimit": 1},
        (
            fails(0, 143, disrupted=True),
            runs,
            vanishes(1),
            runs,
            fails(1),
            after(10),
            runs,
            fails(0, 143, disrupted=True),
            runs,
        ),
        "Running",
        restarts=1,
        attempt=4,
    ),
    Story(
        "a deadline fires in the pause before a try",
        {"backoffLimit": 9, "activeDeadlineSeconds": 5},
        (fails(0), after(5)),
        "Failed",
        "DeadlineExceeded",
        restarts=1,
        attempt=1,
    ),
    Story(
        "a chief that succeeds in the pass in which another fails completes the job",
        {"backoffLimit": 0, **CHIEF},
        (after(5), lambda life: life.exit_pod("mnist-worker-1", 1), succeeds(0)),
        "Completed",
        "WorkersSucceeded",
    ),
    Story(
        "a chief that has succeeded before a restart has to do it again",
        {"backoffLimit": 3, "successPolicy": {"rules": [{"succeededCount": 2}]}},
        (succeeds(0), fails(1), after(10), runs, succeeds(0)),
        "Running",
        restarts=1,
        attempt=1,
    ),
    Story(
        "a job that is suspended after its end stays as it ended and goes at its time",
        {"ttlSecondsAfterFinished": 60},
        (succeeds(0, 1), suspends, after(59)),
        "Completed",
        "WorkersSucceeded",
    ),
    Story(
        "an operator that was away while a deadline and a success passed sees the success",
        {"activeDeadlineSeconds": 10},
        (
            lambda life: life.exit_pod("mnist-worker-0", 0),
            lambda life: life.exit_pod("mnist-worker-1", 0),
            away(500),
            after(0),
        ),
        "Completed",
        "WorkersSucceeded",
    ),
    Story(
        "an operator that was away for longer than a pause makes the pods at once",
        {"backoffLimit": 1},
        (fails(0), away(500), after(0), runs),
        "Running",
        restarts=1,
        attempt=1,
    ),
    Story(
        "an elastic job is bounded by its deadline and not by tries",
        {"activeDeadlineSeconds": 100},
        (fails(0, 143, disrupted=True), runs, fails(1, 143, disrupted=True), runs, after(100)),
        "Failed",
        "DeadlineExceeded",
        shape={"workers": 2, "elastic": 1},
    ),
    Story(
        "a worker that stands alone comes back after its pause, and a deadline ends it all the same",
        {"backoffLimit": 5, "activeDeadlineSeconds": 60},
        (fails(1), after(10), runs, after(20), fails(1), after(20), runs, after(10)),
        "Failed",
        "DeadlineExceeded",
        restarts=2,
        shape={"ps": 1, "workers": 2, "with_gloo": 0},
    ),
    Story(
        "a job that fails before its start deadline has what is left of nothing: the pause is not in it",
        {"backoffLimit": 5, "startDeadlineSeconds": 4},
        (fails(1), after(10 + 3), runs, after(100)),
        "Running",
        restarts=1,
        attempt=1,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_policies_meet(story: Story) -> None:
    shape: JSONObject = story.shape or {"workers": 2}
    life = start_scenario(make_job(**shape, policies=story.policies), ETCD)
    for step in story.steps:
        step(life)
    assert (life.status.phase, life.status.restarts, life.status.attempt) == (
        story.phase,
        story.restarts,
        story.attempt,
    )
    assert not story.reason or get_condition(life.status, story.phase).reason == story.reason
    assert life.deleted_at is None
