"""A pod as the node reads it: what shall run, what that needs, and what was last said of it."""

from datetime import datetime
from typing import Any

import msgspec

from paddle_operator.kube.objects import Meta, Object, Resource, View
from paddle_operator.local.kubelet.pod_volumes import FieldOf, ResourceOf, Volume

Quantity = str | int | float
Port = int | str  # a name stands for one of the container's own ports


class KeyOf(View, frozen=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ValueFrom(View, frozen=True):
    field_ref: FieldOf | None = None
    resource_field_ref: ResourceOf | None = None
    config_map_key_ref: KeyOf | None = None
    secret_key_ref: KeyOf | None = None


class Variable(View, frozen=True):
    name: str
    value: str = ""
    value_from: ValueFrom | None = None


class AllOf(View, frozen=True):
    """A ConfigMap or Secret with all its keys."""

    name: str = ""
    optional: bool = False


class Variables(View, frozen=True):
    prefix: str = ""
    config_map_ref: AllOf | None = None
    secret_ref: AllOf | None = None


class ContainerPort(View, frozen=True):
    container_port: int = 0
    host_port: int = 0
    name: str = ""
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class VolumeMount(View, frozen=True):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""


class Resources(View, frozen=True):
    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)
    limits: dict[str, Quantity] = msgspec.field(default_factory=dict)


class Exec(View, frozen=True):
    command: tuple[str, ...] = ()


class Header(View, frozen=True):
    name: str = ""
    value: str = ""


class HttpGet(View, frozen=True):
    port: Port
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[Header, ...] = ()


class TcpSocket(View, frozen=True):
    port: Port
    host: str = ""


class Sleep(View, frozen=True):
    seconds: int = 0


class Handler(View, frozen=True):
    """A question to a container, or a hook: one of these."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    sleep: Sleep | None = None
    grpc: dict[str, Any] | None = None


class Probe(Handler, frozen=True):
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(View, frozen=True):
    post_start: Handler | None = None
    pre_stop: Handler | None = None


class SecurityContext(View, frozen=True):
    run_as_user: int | None = None


class ContainerSpec(View, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[Variable, ...] = ()
    env_from: tuple[Variables, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: Resources = Resources()
    volume_mounts: tuple[VolumeMount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    restart_policy: str = ""  # Always makes an init container a sidecar


class HostAlias(View, frozen=True):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class SchedulingGate(View, frozen=True):
    name: str = ""


class PodSpec(View, frozen=True):
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    service_account_name: str = ""
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""
    host_aliases: tuple[HostAlias, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    security_context: SecurityContext | None = None
    overhead: dict[str, Quantity] = msgspec.field(default_factory=dict)
    init_containers: tuple[ContainerSpec, ...] = ()
    containers: tuple[ContainerSpec, ...] = ()
    volumes: tuple[Volume, ...] = ()

    @property
    def every_container(self) -> tuple[ContainerSpec, ...]:
        return (*self.init_containers, *self.containers)


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
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()

    @property
    def has_run(self) -> bool:
        state = self.state
        return bool(state.running or state.terminated or self.last_state.terminated or self.restart_count)


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

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.conditions)


class PodMeta(Meta, frozen=True):
    deletion_grace_period_seconds: int = 0


class LocalPod(Object, frozen=True):
    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def has_run(self) -> bool:
        """Whether any container of it was ever started, by anybody's account."""
        return any(each.has_run for each in (*self.status.init_container_statuses, *self.status.container_statuses))

    @property
    def host_name(self) -> str:
        """What the pod calls itself; one on the host's network has its node's name."""
        spec = self.spec
        return spec.node_name if spec.host_network else (spec.hostname or self.key.name)[:63].rstrip("-.")

    def asks_otherwise_than(self, earlier: "LocalPod") -> bool:
        """Whether it is worth a look: status alone, which is the node's own echo, is not."""
        now, then = self.metadata, earlier.metadata
        return (now.generation, now.annotations, now.labels, now.deletion_timestamp, self.spec) != (
            then.generation,
            then.annotations,
            then.labels,
            then.deletion_timestamp,
            earlier.spec,
        )


PODS = Resource("api/v1", "pods", LocalPod)
