"""What a container can be: waiting, running or terminated; and what a pod is that was told to end."""

from dataclasses import dataclass
from datetime import datetime

KILLED = 137

CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
CONFIG_ERROR = "CreateContainerConfigError"
CREATE_ERROR = "CreateContainerError"
CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    started_at: datetime


@dataclass(frozen=True)
class Terminated:
    code: int
    reason: str
    message: str = ""
    started_at: datetime | None = None  # None where no process was ever started
    finished_at: datetime | None = None


State = Waiting | Running | Terminated


@dataclass
class ContainerView:
    """What a pod's status says of one of its containers."""

    name: str
    image: str
    state: State
    initial: bool = False
    sidecar: bool = False
    last: Terminated | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    image_id: str = ""
    container_id: str = ""
    finished: bool = False  # terminated, and nothing will start it again

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.code == 0

    @property
    def initialized(self) -> bool:
        """Whether the next init container may start; a sidecar is waited for only until it has started."""
        return self.started if self.sidecar else self.succeeded

    @property
    def has_run(self) -> bool:
        """Waiting after a first end is a crash loop, and that counts as running."""
        never = isinstance(self.state, Terminated) and self.state.started_at is None
        return self.last is not None or not (isinstance(self.state, Waiting) or never)


@dataclass(frozen=True)
class Ending:
    """Why a pod was told to end where that is not its deletion."""

    reason: str
    message: str
    disruption: bool = False


DEADLINE = Ending("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
SHUTDOWN = Ending("NodeShutdown", "the local cluster was ended while the pod ran", disruption=True)
LOST = Ending("Lost", "the local cluster ended while the pod ran, and its processes ended with it")
