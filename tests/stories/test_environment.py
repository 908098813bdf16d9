"""What each program would find in its environment, put together as kubelet does: exact, for every mode and intranet.

paddle-runtime.md, section 7 says why each variable is there; all of it was seen to train.
"""

import pytest

from tests.stories.harness import ClusterHarness, environment, on_both_planes, on_embedded_plane
from tests.stories.jobs import Job, make_job, make_template, with_template

pytestmark = on_embedded_plane

ETCD = "paddle-elastic-etcd:2379"
HOST_PORT = 35000  # the first block of --port-range


class Cast:
    """The pods of a running job: what they see, and under which names they know each other."""

    def __init__(self, harness: ClusterHarness, uid: str, intranet: str) -> None:
        self.intranet = intranet
        self.of_every_pod = {"PADDLE_JOB_ID": uid, "PYTHONUNBUFFERED": "1", "PADDLE_LOG_DIR": "/tmp/paddle-log"}
        self.namespace = harness.namespace
        self.addresses: dict[str, str] = {}
        self.seen: dict[str, dict[str, str]] = {}

    def address(self, role: str, index: int) -> str:
        name = f"mnist-{role}-{index}"
        return f"{name}.{self.namespace}.svc" if self.intranet == "Service" else self.addresses[name]

    def port(self, role: str) -> int:
        return {"ps": HOST_PORT, "worker": HOST_PORT + 1}[role] if self.intranet == "Host" else 2379

    def endpoints(self, role: str, count: int) -> str:
        return ",".join(f"{self.address(role, index)}:{self.port(role)}" for index in range(count))


async def cast_of(harness: ClusterHarness, job: Job) -> Cast:
    await harness.submit(job)
    running = await harness.wait_phase("mnist", "Running")
    cast = Cast(harness, running.uid, job["spec"].get("intranet", "PodIP"))
    cast.addresses = {name: pod.status["podIP"] for name, pod in (await harness.list_pods()).items()}
    cast.seen = await harness.get_environments("mnist")
    return cast


INTRANETS = pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])


@on_both_planes
@INTRANETS
async def test_with_parameter_servers(harness: ClusterHarness, intranet: str) -> None:
    cast = await cast_of(harness, make_job(ps=2, workers=2, intranet=intranet))
    gloo = HOST_PORT + 18 if intranet == "Host" else 2397
    servers, workers = cast.endpoints("ps", 2), cast.endpoints("worker", 2)
    shared = cast.of_every_pod | {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_TRAINERS": f"{cast.address('worker', 0)},{cast.address('worker', 1)}",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": workers,
        "PADDLE_TRAINERS_ENDPOINTS": workers,
        "PADDLE_PSERVERS_IP_PORT_LIST": servers,
        "PADDLE_SERVERS_ENDPOINTS": servers,
        "PADDLE_WITH_GLOO": "1",  # not asked for, and on: without it every worker trains by itself
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": f"{cast.address('ps', 0)}:{gloo}",
        "PADDLE_GLOO_PORT": str(gloo),
        "FLAGS_enable_pir_api": "0",
    }
    assert cast.seen == {
        f"mnist-{role}-{index}": shared
        | {
            "POD_IP": cast.address(role, index),
            "PADDLE_PORT": str(cast.port(role)),
            "PADDLE_TRAINER_ID": str(index),
            "TRAINING_ROLE": training_role,
            "PADDLE_TRAINING_ROLE": training_role,
        }
        for role, training_role in (("ps", "PSERVER"), ("worker", "TRAINER"))
        for index in range(2)
    }


@INTRANETS
async def test_collective(harness: ClusterHarness, intranet: str) -> None:
    cast = await cast_of(harness, make_job(workers=2, intranet=intranet))
    shared = cast.of_every_pod | {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": str(cast.port("worker")),
        "PADDLE_TRAINERS": f"{cast.address('worker', 0)},{cast.address('worker', 1)}",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": cast.endpoints("worker", 2),
        "PADDLE_MASTER": f"{cast.address('worker', 0)}:{cast.port('worker')}",
        "PADDLE_NNODES": "2",
        "PADDLE_DISTRI_BACKEND": "gloo",  # no GPU is asked for
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
    }
    assert cast.seen == {
        f"mnist-worker-{index}": shared
        | {
            "POD_IP": cast.address("worker", index),
            "PADDLE_TRAINER_ID": str(index),
            "PADDLE_RANK": str(index),
            "PADDLE_CURRENT_ENDPOINT": f"{cast.address('worker', index)}:{cast.port('worker')}",
        }
        for index in range(2)
    }


async def test_on_gpus_the_ranks_are_left_to_nccl(harness: ClusterHarness) -> None:
    template = make_template(resources={"limits": {"nvidia.com/gpu": 1}})
    cast = await cast_of(harness, with_template(make_job(workers=2), template))
    assert all("PADDLE_DISTRI_BACKEND" not in seen for seen in cast.seen.values())


async def test_a_job_of_one_worker_knows_that_it_is_alone(harness: ClusterHarness) -> None:
    cast = await cast_of(harness, make_job(workers=1))
    seen, own = cast.seen["mnist-worker-0"], f"{cast.address('worker', 0)}:2379"
    assert (seen["PADDLE_TRAINERS_NUM"], seen["PADDLE_TRAINER_ENDPOINTS"]) == ("1", own)


async def test_user_settings_are_kept_with_a_warning_condition(harness: ClusterHarness) -> None:
    mine = [{"name": "PADDLE_TRAINERS_NUM", "value": "7"}, {"name": "EPOCHS", "value": "3"}]
    cast = await cast_of(harness, with_template(make_job(workers=1), make_template(env=mine)))
    seen = cast.seen["mnist-worker-0"]
    assert (seen["PADDLE_TRAINERS_NUM"], seen["EPOCHS"]) == ("7", "3")
    risk = (await harness.get_job("mnist")).condition("RendezvousAtRisk")
    assert risk["status"] == "True"
    assert risk["message"].startswith("spec.worker.template sets PADDLE_TRAINERS_NUM: ranks may not find each other")
    assert (await harness.wait_single_event("mnist", "UserVariables")).type == "Warning"


async def test_elastic_workers_get_etcd_and_neither_a_list_nor_a_rank(bare_harness: ClusterHarness) -> None:
    harness = bare_harness
    job = make_job(workers=3, elastic=1)
    job["spec"]["worker"] |= {"requests": 2, "limits": 4}
    async with harness.run_operator(etcd=ETCD):
        await harness.submit(job)
        running = await harness.wait_phase("mnist", "Running")
        assert await harness.get_barrier("mnist") is None
        pods = await harness.list_pods()
    for name, pod in pods.items():
        assert environment(pod, {}) == {
            "POD_IP": pod.status["podIP"],
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINING_ROLE": "TRAINER",
            "PADDLE_JOB_ID": running.uid,
            "PYTHONUNBUFFERED": "1",
            "PADDLE_LOG_DIR": "/tmp/paddle-log",
            "PADDLE_MASTER": f"etcd://{ETCD}",
            "PADDLE_NNODES": "2:4",
            "PADDLE_ELASTIC_LEVEL": "1",
            "PADDLE_ELASTIC_TIMEOUT": "60",
            "PADDLE_MAX_RESTART": "1000",
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
            "PADDLE_ELASTIC_SERVER": ETCD,
            "PADDLE_ELASTIC_JOB_ID": f"{harness.namespace}-mnist",
            "PADDLE_ELASTIC_NP": "3",
            "PADDLE_DISTRI_BACKEND": "gloo",
        }, name
