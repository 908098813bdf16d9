"""A pod as a kubelet reads it: what shall run, what that needs first, and what was last said of it."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from paddle_operator.kube.objects import Meta, Object, Resource, View


class Need(NamedTuple):
    """A ConfigMap or Secret that must be there, and keys that it must have."""

    kind: str  # as kubelet spells it in its complaints
    name: str
    keys: tuple[str, ...] = ()


class Reference(View, frozen=True):
    name: str = ""
    key: str = ""
    optional: bool = False


class ValueFrom(View, frozen=True):
    config_map_key_ref: Reference | None = None
    secret_key_ref: Reference | None = None


class Variable(View, frozen=True):
    value_from: ValueFrom | None = None


class Variables(View, frozen=True):
    config_map_ref: Reference | None = None
    secret_ref: Reference | None = None


class Item(View, frozen=True):
    key: str = ""


class Files(View, frozen=True):
    """A volume's source: a ConfigMap has a name, a Secret a secretName, a Secret that is projected a name again."""

    name: str = ""
    secret_name: str = ""
    optional: bool = False
    items: tuple[Item, ...] = ()


class Source(View, frozen=True):
    config_map: Files | None = None
    secret: Files | None = None

    def needs(self) -> Iterator[Need]:
        for kind, files in (("configmap", self.config_map), ("secret", self.secret)):
            if files and not files.optional:
                yield Need(kind, files.name or files.secret_name, tuple(item.key for item in files.items))


class Projected(View, frozen=True):
    sources: tuple[Source, ...] = ()


class Volume(Source, frozen=True):
    projected: Projected | None = None

    def needs(self) -> Iterator[Need]:
        yield from super().needs()
        for source in self.projected.sources if self.projected else ():
            yield from source.needs()


class ContainerSpec(View, frozen=True):
    name: str
    image: str = ""
    env: tuple[Variable, ...] = ()
    env_from: tuple[Variables, ...] = ()

    def needs(self) -> Iterator[Need]:
        for variables in self.env_from:
            yield from _needs(variables.config_map_ref, variables.secret_ref)
        for variable in self.env:
            if source := variable.value_from:
                yield from _needs(source.config_map_key_ref, source.secret_key_ref)


def _needs(config_map: Reference | None, secret: Reference | None) -> Iterator[Need]:
    for kind, reference in (("configmap", config_map), ("secret", secret)):
        if reference and not reference.optional:
            yield Need(kind, reference.name, (reference.key,) if reference.key else ())


class PodSpec(View, frozen=True):
    node_name: str = ""
    host_network: bool = False
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    init_containers: tuple[ContainerSpec, ...] = ()
    containers: tuple[ContainerSpec, ...] = ()
    volumes: tuple[Volume, ...] = ()


class RunningState(View, frozen=True):
    started_at: datetime | None = None


class WaitingState(View, frozen=True):
    reason: str = ""
    message: str = ""


class TerminatedState(View, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(View, frozen=True):
    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(View, frozen=True):
    name: str = ""
    restart_count: int = 0
    ready: bool = False
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Condition(View, frozen=True, omit_defaults=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_probe_time: datetime | None = None
    observed_generation: int = 0


class PodStatus(View, frozen=True):
    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodMeta(Meta, frozen=True):
    deletion_grace_period_seconds: int = 0


class HollowPod(Object, frozen=True):
    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def asks_otherwise_than(self, earlier: "HollowPod") -> bool:
        """Whether a kubelet looks at the pod again for it: status alone, which is its own echo, does not count."""
        now, then = self.metadata, earlier.metadata
        return (now.generation, now.annotations, now.labels, now.deletion_timestamp) != (
            then.generation,
            then.annotations,
            then.labels,
            then.deletion_timestamp,
        )


PODS = Resource("api/v1", "pods", HollowPod)
