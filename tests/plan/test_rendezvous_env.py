"""The variables of every container, as paddle-runtime.md section 7 has them. Whole tables, so nothing creeps in."""

from base64 import b64decode
from typing import Any

import pytest

from paddle_operator.kube.objects import CONFIG_MAPS
from paddle_operator.plan import rendezvous_env
from paddle_operator.plan.children import Children
from paddle_operator.plan.endpoints import PORTS_PER_JOB
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.paddlejob import PlanContext, plan
from tests.support.jobs import (
    ETCD,
    T0,
    UID,
    environment,
    make_job,
    make_services,
    make_template,
    make_waiting_pods,
    manifest,
    reasons,
)

EVERYWHERE = {
    "PADDLE_JOB_ID": UID,
    "PYTHONUNBUFFERED": "1",
    "PADDLE_LOG_DIR": "/tmp/paddle-log",
}
PORTS = {"TRAINER_PORTS_NUM": "20", "PADDLE_PORT": "2379"}
HOST_PORT = 35040


def trainer(index: int) -> dict[str, str]:
    return {"PADDLE_TRAINER_ID": str(index), "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINING_ROLE": "TRAINER"}


def server(index: int) -> dict[str, str]:
    return {"PADDLE_TRAINER_ID": str(index), "TRAINING_ROLE": "PSERVER", "PADDLE_TRAINING_ROLE": "PSERVER"}


def test_two_workers_get_the_collective_contract() -> None:
    assert environment(make_job(workers=2), "worker", 1) == EVERYWHERE | PORTS | trainer(1) | {
        "POD_IP": "10.2.0.2",
        "PADDLE_TRAINER_ENDPOINTS": "10.2.0.1:2379,10.2.0.2:2379",
        "PADDLE_TRAINERS": "10.2.0.1,10.2.0.2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_CURRENT_ENDPOINT": "10.2.0.2:2379",
        "PADDLE_MASTER": "10.2.0.1:2379",
        "PADDLE_NNODES": "2",
        "PADDLE_RANK": "1",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }


def test_single_worker_is_its_own_master() -> None:
    """So that a script written for many also runs with one, under plain Python and under launch."""
    assert environment(make_job(workers=1), "worker", 0) == EVERYWHERE | PORTS | trainer(0) | {
        "POD_IP": "10.2.0.1",
        "PADDLE_TRAINER_ENDPOINTS": "10.2.0.1:2379",
        "PADDLE_TRAINERS": "10.2.0.1",
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_CURRENT_ENDPOINT": "10.2.0.1:2379",
        "PADDLE_MASTER": "10.2.0.1:2379",
        "PADDLE_NNODES": "1",
        "PADDLE_RANK": "0",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }


PARAMETER_SERVERS = {
    "PADDLE_PSERVERS_IP_PORT_LIST": "10.1.0.1:2379,10.1.0.2:2379",
    "PADDLE_SERVERS_ENDPOINTS": "10.1.0.1:2379,10.1.0.2:2379",
    "PADDLE_TRAINER_ENDPOINTS": "10.2.0.1:2379,10.2.0.2:2379",
    "PADDLE_TRAINERS_ENDPOINTS": "10.2.0.1:2379,10.2.0.2:2379",
    "PADDLE_TRAINERS": "10.2.0.1,10.2.0.2",
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_GLOO_PORT": "2397",
    "FLAGS_enable_pir_api": "0",
}
GLOO = {
    "PADDLE_WITH_GLOO": "1",
    "PADDLE_GLOO_RENDEZVOUS": "3",
    "PADDLE_GLOO_HTTP_ENDPOINT": "10.1.0.1:2397",
}


def test_ps_and_workers_share_lists() -> None:
    job = make_job(ps=2, workers=2)
    shared = EVERYWHERE | PORTS | PARAMETER_SERVERS | GLOO
    assert environment(job, "ps", 1) == shared | server(1) | {"POD_IP": "10.1.0.2"}
    assert environment(job, "worker", 1) == shared | trainer(1) | {"POD_IP": "10.2.0.2"}


def test_without_gloo_nothing_is_said_of_its_rendezvous() -> None:
    env = environment(make_job(ps=2, workers=2, with_gloo=0), "worker", 0)
    assert env == EVERYWHERE | PORTS | PARAMETER_SERVERS | trainer(0) | {"POD_IP": "10.2.0.1"}


def test_gloo_for_servers_too_is_passed_on() -> None:
    assert environment(make_job(ps=1, workers=1, with_gloo=2), "ps", 0)["PADDLE_WITH_GLOO"] == "2"


def test_gloo_needs_a_parameter_server() -> None:
    assert not [name for name in environment(make_job(workers=2, with_gloo=1), "worker", 0) if "GLOO" in name]


def test_servers_alone_are_told_of_no_workers() -> None:
    env = environment(make_job(ps=1), "ps", 0)
    assert not [name for name in env if "TRAINERS" in name or ("ENDPOINTS" in name and "SERVERS" not in name)]


def test_heter_lists_have_paddle_and_go_names() -> None:
    job = make_job(ps=1, workers=1, heter=2)
    heter = environment(job, "heter", 1)
    assert heter == EVERYWHERE | PORTS | GLOO | {
        "POD_IP": "10.3.0.2",
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "HETER_TRAINER",
        "PADDLE_TRAINING_ROLE": "HETER_TRAINER",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.1.0.1:2379",
        "PADDLE_SERVERS_ENDPOINTS": "10.1.0.1:2379",
        "PADDLE_TRAINER_ENDPOINTS": "10.2.0.1:2379",
        "PADDLE_TRAINERS_ENDPOINTS": "10.2.0.1:2379",
        "PADDLE_TRAINERS": "10.2.0.1",
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_GLOO_PORT": "2397",
        "FLAGS_enable_pir_api": "0",
        "PADDLE_HETER_ENDPOINTS": "10.3.0.1:2379,10.3.0.2:2379",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST": "10.3.0.1:2379,10.3.0.2:2379",
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": "10.3.0.1:2379,10.3.0.2:2379",
    }
    assert environment(job, "worker", 0)["PADDLE_HETER_ENDPOINTS"] == "10.3.0.1:2379,10.3.0.2:2379"


def test_heter_pod_has_no_collective_rank() -> None:
    """Two pods with the same rank make launch fail."""
    job = make_job(workers=2, heter=1)
    assert "PADDLE_RANK" not in environment(job, "heter", 0)
    assert environment(job, "worker", 0)["PADDLE_RANK"] == "0"


def test_an_elastic_worker_gets_etcd_and_neither_rank_nor_list() -> None:
    job = make_job(workers=3, elastic=1, requests=2, limits=4)
    assert environment(job, "worker", 1, context=ETCD) == EVERYWHERE | {
        "POD_IP": "10.2.0.2",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_MASTER": "etcd://10.0.0.9:2379",
        "PADDLE_NNODES": "2:4",
        "PADDLE_ELASTIC_LEVEL": "1",
        "PADDLE_ELASTIC_TIMEOUT": "60",
        "PADDLE_MAX_RESTART": "1000",
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
        "PADDLE_DISTRI_BACKEND": "gloo",
        "PADDLE_ELASTIC_SERVER": "10.0.0.9:2379",
        "PADDLE_ELASTIC_JOB_ID": "paddle-system-mnist",
        "PADDLE_ELASTIC_NP": "3",
    }


@pytest.mark.parametrize("bounds", [{}, {"requests": 0, "limits": 0}])
def test_an_elastic_job_without_limits_has_its_replicas_as_both(bounds: dict[str, Any]) -> None:
    job = make_job(workers=3, elastic=1, **bounds)
    assert environment(job, "worker", 0, context=ETCD)["PADDLE_NNODES"] == "3:3"


@pytest.mark.parametrize("elastic", [{}, {"elastic": 1}])
def test_service_mode_uses_names_with_a_dot(elastic: dict[str, Any]) -> None:
    env = environment(make_job(workers=2, intranet="Service", **elastic), "worker", 1, context=ETCD)
    assert env["POD_IP"] == "mnist-worker-1.paddle-system.svc"
    if not elastic:
        assert env["PADDLE_CURRENT_ENDPOINT"] == "mnist-worker-1.paddle-system.svc:2379"
        assert env["PADDLE_MASTER"] == "mnist-worker-0.paddle-system.svc:2379"
        assert env["PADDLE_TRAINERS"] == "mnist-worker-0.paddle-system.svc,mnist-worker-1.paddle-system.svc"
        assert env["PADDLE_TRAINER_ENDPOINTS"] == (
            "mnist-worker-0.paddle-system.svc:2379,mnist-worker-1.paddle-system.svc:2379"
        )


def test_service_mode_ps_finds_itself_in_the_list() -> None:
    env = environment(make_job(ps=2, workers=1, intranet="Service"), "ps", 1)
    assert f"{env['POD_IP']}:{env['PADDLE_PORT']}" == env["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")[1]
    assert env["PADDLE_GLOO_HTTP_ENDPOINT"] == "mnist-ps-0.paddle-system.svc:2397"


def test_host_network_roles_have_ports_of_the_block() -> None:
    job = make_job(ps=1, workers=1, heter=1, intranet="Host", host_port=HOST_PORT)
    by_role = {role: environment(job, role, 0) for role in ("ps", "worker", "heter")}
    assert {role: env["PADDLE_PORT"] for role, env in by_role.items()} == {
        "ps": "35040",
        "worker": "35041",
        "heter": "35042",
    }
    for env in by_role.values():
        assert env["PADDLE_PSERVERS_IP_PORT_LIST"] == "10.1.0.1:35040"
        assert env["PADDLE_TRAINER_ENDPOINTS"] == "10.2.0.1:35041"
        assert env["PADDLE_HETER_ENDPOINTS"] == "10.3.0.1:35042"
        assert env["PADDLE_GLOO_HTTP_ENDPOINT"] == "10.1.0.1:35058"
        assert env["PADDLE_GLOO_PORT"] == "35058"


def test_host_network_workers_use_their_port() -> None:
    env = environment(make_job(workers=2, intranet="Host", host_port=HOST_PORT), "worker", 1)
    assert env["PADDLE_PORT"] == "35041"
    assert env["PADDLE_CURRENT_ENDPOINT"] == "10.2.0.2:35041"
    assert env["PADDLE_MASTER"] == "10.2.0.1:35041"


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
@pytest.mark.parametrize("with_gloo", [None, 1, 2])
def test_gloo_endpoint_has_its_own_port_on_ps_0(intranet: str, with_gloo: int | None) -> None:
    job = make_job(ps=2, workers=2, heter=1, intranet=intranet, with_gloo=with_gloo, host_port=HOST_PORT)
    env = environment(job, "ps", 0)
    host, _, port = env["PADDLE_GLOO_HTTP_ENDPOINT"].partition(":")
    lists = [value for name, value in env.items() if name.endswith(("LIST", "ENDPOINTS"))]
    taken = {endpoint.partition(":")[2] for value in lists for endpoint in value.split(",")}
    assert host == env["POD_IP"]
    assert port not in taken | {env["PADDLE_PORT"]}
    assert int(port) - min(map(int, taken)) < PORTS_PER_JOB


DEVICES = [
    ({"limits": {"nvidia.com/gpu": 1}}, False),
    ({"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": 4}}, False),
    ({"requests": {"kunlunxin.com/xpu": 1}}, False),
    ({"claims": [{"name": "gpu"}]}, False),
    ({"limits": {"nvidia.com/gpu": 0}}, True),
    ({"limits": {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "1Gi"}}, True),
    ({"limits": {"rdma/hca": 1}}, True),
    ({"limits": None, "requests": None}, True),
    (None, True),
]


@pytest.mark.parametrize(("resources", "on_gloo"), DEVICES)
@pytest.mark.parametrize("elastic", [None, 1])
def test_the_backend_is_gloo_only_without_accelerators(
    resources: dict[str, object] | None, on_gloo: bool, elastic: int | None
) -> None:
    job = make_job(workers=2, template=make_template({"resources": resources}), elastic=elastic)
    env = environment(job, "worker", 0, context=ETCD)
    assert env.get("PADDLE_DISTRI_BACKEND") == ("gloo" if on_gloo else None)


def test_parameter_servers_are_not_told_of_a_backend() -> None:
    assert "PADDLE_DISTRI_BACKEND" not in environment(make_job(ps=1, workers=1), "worker", 0)


# Lists that Linux would not take


def barrier_of(job: Job, context: PlanContext | None = None) -> tuple[dict[str, str], list[str]]:
    desired = plan(job, Children(make_waiting_pods(job), services=make_services(job)), T0, context)
    return manifest(desired, CONFIG_MAPS, job.key.name)["data"], reasons(desired)


def test_lists_that_fit_are_kept() -> None:
    data, events = barrier_of(make_job(workers=6500))
    assert (
        len("PADDLE_TRAINER_ENDPOINTS=" + data["PADDLE_TRAINER_ENDPOINTS"] + "\0") <= rendezvous_env.MAX_VARIABLE_BYTES
    )
    assert "EndpointsLeftOut" not in events


def test_oversized_lists_are_left_out() -> None:
    data, events = barrier_of(make_job(workers=9000))
    assert "PADDLE_TRAINER_ENDPOINTS" not in data
    assert data["PADDLE_MASTER"] == "10.2.0.1:2379"
    assert data["PADDLE_NNODES"] == data["PADDLE_TRAINERS_NUM"] == "9000"
    assert "EndpointsLeftOut" in events


@pytest.mark.parametrize(("room", "kept"), [(0, True), (-1, False)])
def test_the_last_byte_counts(monkeypatch: pytest.MonkeyPatch, room: int, kept: bool) -> None:
    """Linux counts the name, the equals sign and the zero at the end."""
    longest = b"PADDLE_TRAINER_ENDPOINTS=10.2.0.1:2379,10.2.0.2:2379\0"
    monkeypatch.setattr(rendezvous_env, "MAX_VARIABLE_BYTES", len(longest) + room)
    data, events = barrier_of(make_job(workers=2))
    assert ("PADDLE_TRAINER_ENDPOINTS" in data) is kept
    assert ("EndpointsLeftOut" in events) is not kept
    assert "PADDLE_TRAINERS" in data


def test_what_was_left_out_is_told_as_a_warning_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_env, "MAX_VARIABLE_BYTES", len("PADDLE_MASTER=10.2.0.1:2379") + 1)
    job = make_job(workers=2)
    (told,) = [each for each in plan(job, Children(make_waiting_pods(job)), T0).events if each.warning]
    assert told.reason == "EndpointsLeftOut"
    assert told.note == (
        "not set because longer than Linux allows: PADDLE_TRAINER_ENDPOINTS and PADDLE_TRAINERS; "
        "python -m paddle.distributed.launch works without"
    )


def test_hosts_has_every_node_once_and_what_the_user_asked_for() -> None:
    template = make_template(hostAliases=[{"ip": "10.9.9.9", "hostnames": ["data", "data.local"]}])
    job = make_job(ps=2, workers=2, intranet="Host", host_port=HOST_PORT, template=template)
    desired = plan(job, Children(make_waiting_pods(job)), T0)
    written = manifest(desired, CONFIG_MAPS, job.key.name)["binaryData"]
    assert b64decode(written["hosts"]).decode().splitlines() == [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        "192.168.0.1 node-0",
        "192.168.0.2 node-1",
        "10.9.9.9 data data.local",
    ]


def test_only_the_host_network_has_a_hosts_file() -> None:
    job = make_job(workers=1)
    desired = plan(job, Children(make_waiting_pods(job)), T0)
    assert "binaryData" not in manifest(desired, CONFIG_MAPS, job.key.name)
