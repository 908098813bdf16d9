"""Every reason that our conditions and events carry, each once: `kubectl`, alerts and the CLI match these strings."""

from enum import StrEnum


class Reason(StrEnum):
    """Reason of a condition or an event of a PaddleJob."""

    SPEC_VALID = "SpecValid"
    SPEC_INVALID = "SpecInvalid"

    # Progress: no user action needed.
    CREATING_POD_GROUP = "CreatingPodGroup"
    WAITING_FOR_POD_GROUP = "WaitingForPodGroup"
    CREATING_PODS = "CreatingPods"
    WAITING_FOR_ADDRESSES = "WaitingForAddresses"
    STARTING_CONTAINERS = "StartingContainers"
    PODS_TERMINATING = "PodsTerminating"
    ALL_PODS_RUNNING = "AllPodsRunning"

    # Why the job does not run.
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CREATE_CONTAINER_FAILED = "CreateContainerFailed"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    UNSCHEDULABLE = "Unschedulable"
    IPV4_ADDRESS_REQUIRED = "IPv4AddressRequired"
    HOST_PORTS_EXHAUSTED = "HostPortsExhausted"
    ETCD_NOT_CONFIGURED = "EtcdNotConfigured"
    POD_GROUP_CRD_NOT_FOUND = "PodGroupCRDNotFound"

    # The API server refused to create a child.
    NAME_CONFLICT = "NameConflict"
    QUOTA_EXCEEDED = "QuotaExceeded"
    FORBIDDEN = "Forbidden"
    INVALID = "Invalid"
    NOT_FOUND = "NotFound"

    # Lifecycle.
    RESTARTING = "Restarting"
    REPLACING = "Replacing"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    NODE_LOST = "NodeLost"
    ENDPOINTS_LEFT_OUT = "EndpointsLeftOut"

    # The end of the job.
    COMPLETED = "Completed"
    FAILED = "Failed"
    WORKERS_SUCCEEDED = "WorkersSucceeded"
    POD_FAILED = "PodFailed"
    POD_FAILURE_POLICY = "PodFailurePolicy"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"

    # Warnings about the spec.
    USER_VARIABLES = "UserVariables"
    RESTARTS_ALWAYS = "RestartsAlways"
    OTHER_SCHEDULER = "OtherScheduler"
    NO_RISK = "NoRisk"


class WaitingReason(StrEnum):
    """Why kubelet has not started a container: the values that a decision or a metric label uses."""

    CONTAINER_CREATING = "ContainerCreating"
    POD_INITIALIZING = "PodInitializing"
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    RUN_CONTAINER_ERROR = "RunContainerError"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    ERR_IMAGE_PULL = "ErrImagePull"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    INVALID_IMAGE_NAME = "InvalidImageName"
    ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull"


class RestartCause(StrEnum):
    """Why pods were replaced; a label of `paddlejob_restarts_total`."""

    FAILURE = "failure"
    DISRUPTION = "disruption"
    LOST = "lost"
    REPLICAS = "replicas"
