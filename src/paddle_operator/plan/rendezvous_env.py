"""The variables that a container gets: the seeds' own and what `paddle.distributed.launch` reads today.

Both sets together were seen to train with plain Python and with launch, 2.6 to 3.3 (paddle-runtime.md, section 7). What
all pods share is in the job's ConfigMap, the barrier; what differs from pod to pod is in the pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paddle_operator.api.paddlejob import Intranet, Mode, PaddleJobSpec, Role
from paddle_operator.plan.children import Job
from paddle_operator.plan.endpoints import PORTS_PER_JOB, Endpoints, ports_of, service_address
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_template import host_alias_lines

MAX_VARIABLE_BYTES = 131_072  # Linux takes no single `NAME=value` longer than this
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
"""Variables that a user should leave to us: one that differs makes a rank wait for ever, or train alone and exit 0."""


@dataclass(frozen=True)
class RendezvousEnv:
    """What the barrier holds; `left_out` names lists that were too long for the environment."""

    variables: Mapping[str, str]
    digest: str
    hosts: str = ""  # the text of /etc/hosts for pods on the host network
    oversized: tuple[str, ...] = ()


def contract(observed: ObservedJob, known: Endpoints) -> RendezvousEnv:
    """What all pods share."""
    variables, oversized = _bounded(_shared(observed.spec, known))
    hosts = _hosts(observed) if observed.spec.intranet is Intranet.HOST else ""
    return RendezvousEnv(variables, known.digest, hosts, oversized)


def _shared(spec: PaddleJobSpec, known: Endpoints) -> dict[str, str]:
    variables = {"TRAINER_PORTS_NUM": str(PORTS_PER_JOB), "PADDLE_PORT": str(known.ports.worker)}
    if spec.worker:
        variables |= _workers(spec.mode, known)
    if spec.heter:
        heter = known.of(Role.HETER)
        variables |= {  # the first is the Go operator's name, which no Paddle reads; the others are Paddle's
            "PADDLE_HETER_ENDPOINTS": heter,
            "PADDLE_HETER_TRAINER_IP_PORT_LIST": heter,
            "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": heter,
        }
    if spec.ps:
        variables |= _servers(spec, known)
    return variables


def _workers(mode: Mode, known: Endpoints) -> dict[str, str]:
    """A single worker gets the same as many: lists of one, and itself as the master."""
    hosts = known.hosts[Role.WORKER]
    variables = {
        "PADDLE_TRAINER_ENDPOINTS": known.of(Role.WORKER),
        "PADDLE_TRAINERS": ",".join(hosts),
        "PADDLE_TRAINERS_NUM": str(len(hosts)),
    }
    if mode is Mode.PS:
        return variables
    return variables | {"PADDLE_MASTER": f"{hosts[0]}:{known.ports.worker}", "PADDLE_NNODES": str(len(hosts))}


def _servers(spec: PaddleJobSpec, known: Endpoints) -> dict[str, str]:
    variables = {
        "PADDLE_PSERVERS_IP_PORT_LIST": known.of(Role.PS),
        "PADDLE_SERVERS_ENDPOINTS": known.of(Role.PS),  # these let launch run parameter servers, too
        **({"PADDLE_TRAINERS_ENDPOINTS": known.of(Role.WORKER)} if spec.worker else {}),
        "PADDLE_GLOO_PORT": str(known.ports.gloo),
        "FLAGS_enable_pir_api": "0",  # 3.0.0 cannot train with parameter servers otherwise
    }
    if spec.gloo:
        variables |= {
            "PADDLE_WITH_GLOO": str(spec.gloo),
            "PADDLE_GLOO_RENDEZVOUS": "3",
            "PADDLE_GLOO_HTTP_ENDPOINT": f"{known.hosts[Role.PS][0]}:{known.ports.gloo}",
        }
    return variables


def _bounded(variables: dict[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Without the lists that are too long for the environment: launch needs only its master then."""
    ends = len("=\0")
    too_long = tuple(name for name, value in variables.items() if len(name) + len(value) + ends > MAX_VARIABLE_BYTES)
    return {name: value for name, value in variables.items() if name not in too_long}, too_long


def _hosts(observed: ObservedJob) -> str:
    """Gloo takes the address that its node's name resolves to, which on many nodes is 127.0.1.1 or none."""
    nodes = sorted({(pod.node_address, pod.node) for pod in observed.pods() if pod.node})
    aliases = [line for wanted in observed.spec.roles.values() for line in host_alias_lines(wanted)]
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        *(f"{address} {node}" for address, node in nodes),
        *dict.fromkeys(aliases),
    ]
    return "\n".join(lines) + "\n"


def pod_variables(job: Job, role: Role, index: int, *, requests_device: bool, etcd: str) -> list[dict[str, object]]:
    """What only this pod gets, in the order of the seeds first."""
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
        values |= _elastic(job, etcd)
    elif role is Role.WORKER and spec.mode is not Mode.PS:
        values |= {"PADDLE_RANK": str(index), "PADDLE_CURRENT_ENDPOINT": f"$(POD_IP):{port}"}
    if spec.mode is not Mode.PS and not requests_device:
        values["PADDLE_DISTRI_BACKEND"] = "gloo"  # on a GPU it would keep the ranks from using NCCL
    if job.status.host_port is not None:  # then each role has its own, and the barrier's is the workers'
        values["PADDLE_PORT"] = str(port)
    literal: list[dict[str, object]] = [{"name": name, "value": value} for name, value in values.items()]
    return [{"name": "POD_IP", **pod_ip}, *literal]


def _elastic(job: Job, etcd: str) -> dict[str, str]:
    """Today's launch finds its peers through etcd alone: a list or a rank beside it would switch elasticity off."""
    assert job.spec
    assert job.spec.worker
    worker = job.spec.worker
    least, most = worker.requests or worker.replicas, worker.limits or worker.replicas
    return {
        "PADDLE_MASTER": f"etcd://{etcd}",
        "PADDLE_NNODES": f"{least}:{most}",
        "PADDLE_ELASTIC_LEVEL": "1",
        "PADDLE_ELASTIC_TIMEOUT": "60",
        "PADDLE_MAX_RESTART": "1000",  # each change of the number of ranks uses one up
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",  # etcd3 0.12 needs it with protobuf 4 and later
        "PADDLE_ELASTIC_SERVER": etcd,  # this and the next two are for Paddle 2.2 and older
        "PADDLE_ELASTIC_JOB_ID": f"{job.key.namespace}-{job.key.name}",
        "PADDLE_ELASTIC_NP": str(worker.replicas),
    }
