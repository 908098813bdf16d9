"""Environment variables of a container: the Go operator's, and those that `paddle.distributed.launch` reads today.

Both sets together trained with plain Python and with launch, Paddle 2.6 to 3.3. What all pods share is in the job's
ConfigMap, the barrier; what differs between pods is in the pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paddle_operator.api.paddlejob import Intranet, Mode, PaddleJobSpec, Role
from paddle_operator.plan.endpoints import PORTS_PER_JOB, Endpoints, ports_of, service_address
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_template import host_alias_lines

MAX_VARIABLE_BYTES = 131_072  # Linux rejects a longer `NAME=value`
LOG_DIRECTORY = "/tmp/paddle-log"  # noqa: S108  # the working directory of an image is often not writable
TRAINING_ROLE = {Role.PS: "PSERVER", Role.WORKER: "TRAINER", Role.HETER: "HETER_TRAINER"}

RENDEZVOUS_VARIABLES = frozenset(
    {
        "POD_IP",
        "PADDLE_TRAINER_ID",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_TRAINER_ENDPOINTS",
        "PADDLE_TRAINERS_ENDPOINTS",
        "DISTRIBUTED_TRAINER_ENDPOINTS",
        "PADDLE_CURRENT_ENDPOINT",
        "PADDLE_PSERVERS_IP_PORT_LIST",
        "PADDLE_SERVERS_ENDPOINTS",
        "PADDLE_PORT",
        "PADDLE_MASTER",
        "PADDLE_NNODES",
        "PADDLE_RANK",
        "TRAINING_ROLE",
        "PADDLE_TRAINING_ROLE",
        "PADDLE_GLOO_HTTP_ENDPOINT",
    }
)
"""Variables that a user should not set: one that differs makes a rank wait forever, or train alone and exit 0."""


@dataclass(frozen=True)
class RendezvousEnv:
    """The data of the barrier; `oversized` names the lists that are too long for a variable."""

    variables: Mapping[str, str]
    digest: str
    hosts: str = ""  # the text of /etc/hosts for pods on the host network
    oversized: tuple[str, ...] = ()


def build_rendezvous_env(observed: ObservedJob, endpoints: Endpoints) -> RendezvousEnv:
    variables, oversized = _without_oversized(_shared_variables(observed.spec, endpoints))
    hosts = _hosts_file(observed) if observed.spec.intranet is Intranet.HOST else ""
    return RendezvousEnv(variables, endpoints.digest, hosts, oversized)


def _shared_variables(spec: PaddleJobSpec, endpoints: Endpoints) -> dict[str, str]:
    variables = {"TRAINER_PORTS_NUM": str(PORTS_PER_JOB), "PADDLE_PORT": str(endpoints.ports.worker)}
    if spec.worker:
        variables |= _worker_variables(spec.mode, endpoints)
    if spec.heter:
        heter = endpoints.of(Role.HETER)
        variables |= {  # the first is the Go operator's, which no Paddle reads
            "PADDLE_HETER_ENDPOINTS": heter,
            "PADDLE_HETER_TRAINER_IP_PORT_LIST": heter,
            "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": heter,
        }
    if spec.ps:
        variables |= _server_variables(spec, endpoints)
    return variables


def _worker_variables(mode: Mode, endpoints: Endpoints) -> dict[str, str]:
    """A single worker gets lists of one, and itself as the master."""
    hosts = endpoints.hosts[Role.WORKER]
    variables = {
        "PADDLE_TRAINER_ENDPOINTS": endpoints.of(Role.WORKER),
        "PADDLE_TRAINERS": ",".join(hosts),
        "PADDLE_TRAINERS_NUM": str(len(hosts)),
    }
    if mode is Mode.PS:
        return variables
    return variables | {"PADDLE_MASTER": f"{hosts[0]}:{endpoints.ports.worker}", "PADDLE_NNODES": str(len(hosts))}


def _server_variables(spec: PaddleJobSpec, endpoints: Endpoints) -> dict[str, str]:
    variables = {
        "PADDLE_PSERVERS_IP_PORT_LIST": endpoints.of(Role.PS),
        "PADDLE_SERVERS_ENDPOINTS": endpoints.of(Role.PS),  # launch needs these to run parameter servers
        **({"PADDLE_TRAINERS_ENDPOINTS": endpoints.of(Role.WORKER)} if spec.worker else {}),
        "PADDLE_GLOO_PORT": str(endpoints.ports.gloo),
        "FLAGS_enable_pir_api": "0",  # 3.0.0 cannot train with parameter servers otherwise
    }
    if spec.gloo:
        variables |= {
            "PADDLE_WITH_GLOO": str(spec.gloo),
            "PADDLE_GLOO_RENDEZVOUS": "3",
            "PADDLE_GLOO_HTTP_ENDPOINT": f"{endpoints.hosts[Role.PS][0]}:{endpoints.ports.gloo}",
        }
    return variables


def _without_oversized(variables: dict[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Without lists that exceed MAX_VARIABLE_BYTES: launch needs only its master."""
    separators = len("=\0")
    too_long = tuple(
        name for name, value in variables.items() if len(name) + len(value) + separators > MAX_VARIABLE_BYTES
    )
    return {name: value for name, value in variables.items() if name not in too_long}, too_long


def _hosts_file(observed: ObservedJob) -> str:
    """Gloo uses the address of its node's name, which on many nodes resolves to 127.0.1.1 or not at all."""
    nodes = sorted({(pod.node_address, pod.node) for pod in observed.pods() if pod.node})
    aliases = [line for part in observed.spec.roles.values() for line in host_alias_lines(part)]
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        *(f"{address} {node}" for address, node in nodes),
        *dict.fromkeys(aliases),
    ]
    return "\n".join(lines) + "\n"


def pod_variables(job: Job, role: Role, index: int, *, requests_device: bool, etcd: str) -> list[dict[str, object]]:
    """The variables of one pod, the Go operator's first and in its order."""
    assert job.spec
    spec, port = job.spec, ports_of(job).of(role)
    by_name = spec.intranet is Intranet.SERVICE
    pod_ip: dict[str, object] = (
        {"value": service_address(job, role, index)}
        if by_name
        else {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
    )
    values = {"TRAINING_ROLE": TRAINING_ROLE[role], "PADDLE_TRAINING_ROLE": TRAINING_ROLE[role]}
    if not spec.is_elastic:
        values = {"PADDLE_TRAINER_ID": str(index)} | values
    values |= {"PADDLE_JOB_ID": job.uid, "PYTHONUNBUFFERED": "1", "PADDLE_LOG_DIR": LOG_DIRECTORY}
    if spec.is_elastic:
        values |= _elastic_variables(job, etcd)
    elif role is Role.WORKER and spec.mode is not Mode.PS:
        values |= {"PADDLE_RANK": str(index), "PADDLE_CURRENT_ENDPOINT": f"$(POD_IP):{port}"}
    if spec.mode is not Mode.PS and not requests_device:
        values["PADDLE_DISTRI_BACKEND"] = "gloo"  # on a GPU it would disable NCCL
    if job.status.host_port is not None:  # each role has its own port; the barrier holds the workers'
        values["PADDLE_PORT"] = str(port)
    literals: list[dict[str, object]] = [{"name": name, "value": value} for name, value in values.items()]
    return [{"name": "POD_IP", **pod_ip}, *literals]


def _elastic_variables(job: Job, etcd: str) -> dict[str, str]:
    """Launch finds its peers through etcd alone: a list or a rank would disable elasticity."""
    assert job.spec
    assert job.spec.worker
    worker = job.spec.worker
    minimum, maximum = worker.requests or worker.replicas, worker.limits or worker.replicas
    return {
        "PADDLE_MASTER": f"etcd://{etcd}",
        "PADDLE_NNODES": f"{minimum}:{maximum}",
        "PADDLE_ELASTIC_LEVEL": "1",
        "PADDLE_ELASTIC_TIMEOUT": "60",
        "PADDLE_MAX_RESTART": "1000",  # each change of the number of ranks counts as one
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",  # etcd3 0.12 needs it with protobuf 4 and later
        "PADDLE_ELASTIC_SERVER": etcd,  # this and the next two are for Paddle 2.2 and older
        "PADDLE_ELASTIC_JOB_ID": f"{job.key.namespace}-{job.key.name}",
        "PADDLE_ELASTIC_NP": str(worker.replicas),
    }
