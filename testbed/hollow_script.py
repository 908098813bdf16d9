"""What do the programs in a test's pods do? Rules in one line each, by pod name; nothing is really run.

A behaviour speaks of one aspect of a container: how it starts, when it is ready, how it ends, what SIGTERM does to it.
For each aspect the last rule that matches wins, so that `ignores_sigterm()` for all goes along with `exits(0)` for one.
"""

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from paddle_operator.kube.objects import Key

NEVER = math.inf
KILLED = 137  # 128 + SIGKILL
ENDED = 143  # 128 + SIGTERM


@dataclass(frozen=True)
class Start:
    """Runs `after` seconds, in which it waits for the reason given; without a sandbox the pod has no address either."""

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
    """Is ContainerCreating for so long; the pod has its address meanwhile, as while an image is pulled."""
    return Start(after)


def never_starts() -> Start:
    """Stays ContainerCreating without an address, as where a volume or the network hangs."""
    return Start(NEVER, sandbox=False)


def image_never_pulls() -> Start:
    """ErrImagePull, then ImagePullBackOff."""
    return Start(NEVER, waits_for="ErrImagePull")


def ready(*, after: float) -> Readiness:
    return Readiness(after)


def never_ready() -> Readiness:
    return Readiness(NEVER)


def runs() -> End:
    """Until it is deleted: what every container does that no rule names."""
    return End(0, NEVER, "")


def exits(code: int, *, after: float = 0.0, reason: str = "") -> End:
    """Ends so long after its start, or after the rule was given where that is later."""
    return End(code, after, reason)


def oom_killed(*, after: float = 0.0) -> End:
    return End(KILLED, after, "OOMKilled")


def exits_on_sigterm(code: int = ENDED, *, after: float = 0.0) -> Sigterm:
    """Ends so long after SIGTERM, unless its grace period is over before."""
    return Sigterm(code, after)


def ignores_sigterm() -> Sigterm:
    """Is killed when its grace period is over: 137."""
    return Sigterm(KILLED, NEVER)


class Who(NamedTuple):
    """One life of one container; each restart is another life."""

    key: Key
    uid: str
    container: str
    initial: bool
    restarts: int


@dataclass(frozen=True)
class Conduct:
    """All aspects of one container's life, as the rules are now."""

    start: Start
    readiness: Readiness
    end: End
    end_given_at: float
    sigterm: Sigterm


@dataclass
class Rule:
    """Globs for whom it is about, and what is said of them."""

    pod: str
    namespace: str = "*"
    container: str = ""
    behaviours: tuple[Behaviour, ...] = ()
    given_at: float = 0.0
    times: float = NEVER
    served: set[Who] = field(default_factory=set)

    def names(self, key: Key) -> bool:
        return fnmatchcase(key.name, self.pod) and fnmatchcase(key.namespace, self.namespace)

    def serves(self, who: Who) -> bool:
        """Whether it is about this life, which from then on counts as one of its `times`."""
        meant = not who.initial if not self.container else fnmatchcase(who.container, self.container)
        if not meant or not self.names(who.key):
            return False
        if who not in self.served and len(self.served) >= self.times:
            return False
        if self.times < NEVER:
            self.served.add(who)
        return True


class Script:
    """The rules of a test, in the order given."""

    def __init__(self, startup_seconds: float = 0.0) -> None:
        self._rules: list[Rule] = []
        self._start = Start(startup_seconds)

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def conduct(self, who: Who) -> Conduct:
        """What this life is like. Init containers, unless a rule names them, end at once and well."""
        start, _ = self._last(Start, who) or (Start(0.0) if who.initial else self._start, 0.0)
        readiness, _ = self._last(Readiness, who) or (Readiness(0.0), 0.0)
        end, end_given_at = self._last(End, who) or (exits(0) if who.initial else runs(), 0.0)
        sigterm, _ = self._last(Sigterm, who) or (exits_on_sigterm(), 0.0)
        return Conduct(start, readiness, end, end_given_at, sigterm)

    def _last(self, aspect: type[A], who: Who) -> tuple[A, float] | None:
        for rule in reversed(self._rules):
            for behaviour in rule.behaviours:
                if isinstance(behaviour, aspect) and rule.serves(who):
                    return behaviour, rule.given_at
        return None
