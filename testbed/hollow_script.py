"""What do the containers of a test's pods do? One rule a line, by pod name; no program runs.

A behaviour is one aspect of a container: how it starts, when it is ready, how it ends, how it reacts to SIGTERM.
For each aspect the last matching rule wins: `ignores_sigterm()` for all can be combined with `exits(0)` for one.
"""

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.pod_status import SIGKILL_EXIT_CODE

NEVER = math.inf
SIGTERM_EXIT_CODE = 143  # 128 + SIGTERM


@dataclass(frozen=True)
class Start:
    """Runs `after` seconds; until then it waits for a reason. Without a sandbox the pod has no address either."""

    after: float
    waits_for: str = "ContainerCreating"
    sandbox: bool = True


@dataclass(frozen=True)
class Readiness:
    after: float


@dataclass(frozen=True)
class End:
    code: int
    after: float
    reason: str


@dataclass(frozen=True)
class Sigterm:
    code: int
    after: float


Behaviour = Start | Readiness | End | Sigterm
A = TypeVar("A", Start, Readiness, End, Sigterm)


def starts(*, after: float) -> Start:
    """ContainerCreating for that time; the pod already has its address, as during an image pull."""
    return Start(after)


def never_starts() -> Start:
    """Stays ContainerCreating without an address, as if a volume or the network hung."""
    return Start(NEVER, sandbox=False)


def image_never_pulls() -> Start:
    """ErrImagePull, then ImagePullBackOff."""
    return Start(NEVER, waits_for="ErrImagePull")


def ready(*, after: float) -> Readiness:
    return Readiness(after)


def never_ready() -> Readiness:
    return Readiness(NEVER)


def runs() -> End:
    """Runs until it is deleted: the default of every container."""
    return End(0, NEVER, "")


def exits(code: int, *, after: float = 0.0, reason: str = "") -> End:
    """Exits `after` seconds after its start, or after the rule was added if that is later."""
    return End(code, after, reason)


def oom_killed(*, after: float = 0.0) -> End:
    return End(SIGKILL_EXIT_CODE, after, "OOMKilled")


def exits_on_sigterm(code: int = SIGTERM_EXIT_CODE, *, after: float = 0.0) -> Sigterm:
    """Exits `after` seconds after SIGTERM, unless its grace period ends earlier."""
    return Sigterm(code, after)


def ignores_sigterm() -> Sigterm:
    """Is killed at the end of its grace period: 137."""
    return Sigterm(SIGKILL_EXIT_CODE, NEVER)


class SimulatedRun(NamedTuple):
    """One run of one container; each restart is another run."""

    key: Key
    uid: str
    container: str
    is_init: bool
    restarts: int


@dataclass(frozen=True)
class ContainerBehaviour:
    """All aspects of one container run, by the present rules."""

    start: Start
    readiness: Readiness
    end: End
    end_added_at: float
    sigterm: Sigterm


@dataclass
class BehaviourRule:
    """Globs of the containers that it is about, and their behaviours."""

    pod: str
    namespace: str = "*"
    container: str = ""
    behaviours: tuple[Behaviour, ...] = ()
    added_at: float = 0.0
    times: float = NEVER
    matched_runs: set[SimulatedRun] = field(default_factory=set)

    def matches(self, key: Key) -> bool:
        return fnmatchcase(key.name, self.pod) and fnmatchcase(key.namespace, self.namespace)

    def applies_to(self, run: SimulatedRun) -> bool:
        """Whether it is about this run, which from then on counts as one of its `times`."""
        selected = fnmatchcase(run.container, self.container) if self.container else not run.is_init
        if not selected or not self.matches(run.key):
            return False
        if run not in self.matched_runs and len(self.matched_runs) >= self.times:
            return False
        if self.times < NEVER:
            self.matched_runs.add(run)
        return True


class Script:
    """The rules of a test, in the order in which they were added."""

    def __init__(self, startup_seconds: float = 0.0) -> None:
        self._rules: list[BehaviourRule] = []
        self._start = Start(startup_seconds)

    def add(self, rule: BehaviourRule) -> None:
        self._rules.append(rule)

    def behaviour_of(self, run: SimulatedRun) -> ContainerBehaviour:
        """How this run behaves. Init containers exit 0 at once, unless a rule names them."""
        start, _ = self._last(Start, run) or (Start(0.0) if run.is_init else self._start, 0.0)
        readiness, _ = self._last(Readiness, run) or (Readiness(0.0), 0.0)
        end, end_added_at = self._last(End, run) or (exits(0) if run.is_init else runs(), 0.0)
        sigterm, _ = self._last(Sigterm, run) or (exits_on_sigterm(), 0.0)
        return ContainerBehaviour(start, readiness, end, end_added_at, sigterm)

    def _last(self, aspect: type[A], run: SimulatedRun) -> tuple[A, float] | None:
        for rule in reversed(self._rules):
            for behaviour in rule.behaviours:
                if isinstance(behaviour, aspect) and rule.applies_to(run):
                    return behaviour, rule.added_at
        return None
