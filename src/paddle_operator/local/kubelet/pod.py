"""A pod as the kubelet reads it: its spec, its volumes, and its last reported status.

Volume sources that local mode does not support are missing.
"""

from datetime import datetime
from typing import Any

import msgspec

from paddle_operator.kube.objects import Object, Resource, View

Quantity = str | int | float
Port = int | str  # a name refers to one of the container's own ports


class ConfigKeySelector(View, frozen=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ObjectFieldSelector(View, frozen=True):
    field_path: str = ""


class ResourceFieldSelector(View, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: Quantity = "0"


class EnvVarSource(View, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigKeySelector | None = None
    secret_key_ref: ConfigKeySelector | None = None


class EnvVar(View, frozen=True):
    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class ConfigEnvSource(View, frozen=True):
    """A ConfigMap or Secret with all its keys."""

    name: str = ""
    optional: bool = False


class EnvFromSource(View, frozen=True):
    prefix: str = ""
    config_map_ref: ConfigEnvSource | None = None
    secret_ref: ConfigEnvSource | None = None


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


class ResourceRequirements(View, frozen=True):
    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)
    limits: dict[str, Quantity] = msgspec.field(default_factory=dict)


class ExecAction(View, frozen=True):
    command: tuple[str, ...] = ()


class HTTPHeader(View, frozen=True):
    name: str = ""
    value: str = ""


class HTTPGetAction(View, frozen=True):
    port: Port
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(View, frozen=True):
    port: Port
    host: str = ""


class SleepAction(View, frozen=True):
    seconds: int = 0


class LifecycleHandler(View, frozen=True):
    """What a probe or a hook does: one of these is set."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None
    grpc: dict[str, Any] | None = None


class Probe(LifecycleHandler, frozen=True):
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(View, frozen=True):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class SecurityContext(View, frozen=True):
    run_as_user: int | None = None


class ContainerSpec(View, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    restart_policy: str = ""  # Always makes an init container a sidecar


class KeyToPath(View, frozen=True):
    """A key that becomes a file."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class DownwardAPIVolumeFile(View, frozen=True):
    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class ConfigMapVolumeSource(View, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretVolumeSource(View, frozen=True):
    """A Secret is named by `secretName` in a volume and by `name` in a projection."""

    secret_name: str = ""
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class DownwardAPIVolumeSource(View, frozen=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: int | None = None


class VolumeProjection(View, frozen=True):
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: dict[str, Any] | None = None


class ProjectedVolumeSource(View, frozen=True):
    sources: tuple[VolumeProjection, ...] = ()
    default_mode: int | None = None


class EmptyDirVolumeSource(View, frozen=True):
    medium: str = ""
    size_limit: Quantity | None = None


class HostPathVolumeSource(View, frozen=True):
    path: str = ""
    type: str = ""


class PersistentVolumeClaimVolumeSource(View, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class Volume(View, frozen=True):
    name: str
    empty_dir: EmptyDirVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None


class HostAlias(View, frozen=True):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class SchedulingGate(View, frozen=True):
    name: str = ""


class LocalPodSpec(View, frozen=True):
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
    def all_containers(self) -> tuple[ContainerSpec, ...]:
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


class LocalContainerState(View, frozen=True):
    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class LocalContainerStatus(View, frozen=True):
    name: str = ""
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    restart_count: int = 0
    state: LocalContainerState = LocalContainerState()
    last_state: LocalContainerState = LocalContainerState()

    @property
    def has_run(self) -> bool:
        state = self.state
        return bool(state.running or state.terminated or self.last_state.terminated or self.restart_count)


class LocalPodCondition(View, frozen=True, omit_defaults=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_probe_time: datetime | None = None
    observed_generation: int = 0


class LocalPodStatus(View, frozen=True):
    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: tuple[LocalPodCondition, ...] = ()
    init_container_statuses: tuple[LocalContainerStatus, ...] = ()
    container_statuses: tuple[LocalContainerStatus, ...] = ()

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.conditions)


class LocalPod(Object, frozen=True):
    spec: LocalPodSpec = LocalPodSpec()
    status: LocalPodStatus = LocalPodStatus()

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def has_run(self) -> bool:
        """Whether any of its containers was ever started, by its status."""
        return any(each.has_run for each in (*self.status.init_container_statuses, *self.status.container_statuses))

    @property
    def host_name(self) -> str:
        """The hostname inside the pod; on the host's network it is the node's name."""
        spec = self.spec
        return spec.node_name if spec.host_network else (spec.hostname or self.key.name)[:63].rstrip("-.")

    def needs_sync(self, earlier: "LocalPod") -> bool:
        """Whether more than the status, which is the kubelet's own echo, has changed."""
        now, then = self.metadata, earlier.metadata
        return (now.generation, now.annotations, now.labels, now.deletion_timestamp, self.spec) != (
            then.generation,
            then.annotations,
            then.labels,
            then.deletion_timestamp,
            earlier.spec,
        )


PODS = Resource("api/v1", "pods", LocalPod)
