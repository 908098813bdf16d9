"""Addresses, ports, names: when the pods can reach each other, and when they can no longer."""

from dataclasses import replace

import msgspec
import pytest

from paddle_operator.api.paddlejob import Role
from paddle_operator.controllers.host_ports import PortBlocks
from paddle_operator.kube.objects import CONFIG_MAPS, SERVICES
from paddle_operator.plan.children import Children
from paddle_operator.plan.endpoints import Endpoints, Ports, endpoints_of, ports_of
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.paddlejob import PlanContext, plan
from paddle_operator.plan.rendezvous_env import pod_variables
from tests.support.jobs import (
    T0,
    UID,
    creates,
    make_job,
    make_pods,
    make_service,
    make_services,
    make_waiting_pod,
    make_waiting_pods,
    manifest,
    not_running_reason,
)


def known(job: Job, children: Children) -> Endpoints | None:
    assert job.spec
    return endpoints_of(ObservedJob(job, job.spec, children))


def test_the_barrier_waits_for_every_address() -> None:
    job = make_job(ps=1, workers=2)
    pods = make_waiting_pods(job)
    early = plan(job, Children((*pods[:-1], make_waiting_pod(job, "worker", 1, address=""))), T0)
    assert creates(early) == []
    assert not_running_reason(early) == ("WaitingForAddresses", "1 of 3 pods have no address yet")
    assert creates(plan(job, Children(pods), T0), CONFIG_MAPS) == ["mnist"]


def test_the_barrier_waits_for_every_pod() -> None:
    job = make_job(workers=2)
    assert creates(plan(job, Children(make_waiting_pods(job)[:1]), T0), CONFIG_MAPS) == []


def test_ipv6_address_is_reported_with_the_fix() -> None:
    job = make_job(workers=1)
    desired = plan(job, Children(make_waiting_pods(job, address="fd00::1")), T0)
    assert creates(desired) == []
    assert not_running_reason(desired) == (
        "IPv4AddressRequired",
        "mnist-worker-0 has the IPv6 address fd00::1 first, which Paddle cannot read: set spec.intranet to Service",
    )
    assert desired.events[0].warning


def test_an_ipv4_address_within_an_ipv6_one_is_none_either() -> None:
    job = make_job(workers=1)
    assert known(job, Children(make_waiting_pods(job, address="::ffff:10.0.0.1"))) is None


def test_service_mode_accepts_any_address() -> None:
    job = make_job(workers=1, intranet="Service")
    desired = plan(job, Children(make_waiting_pods(job, address="fd00::1"), services=make_services(job)), T0)
    assert creates(desired) == ["mnist"]
    assert not_running_reason(desired)[0] == "StartingContainers"


def test_service_mode_barrier_waits_for_addresses() -> None:
    job = make_job(workers=1, intranet="Service")
    assert creates(plan(job, Children(make_pods(job, phase="Pending"), services=make_services(job)), T0)) == []


def test_in_service_mode_the_barrier_waits_for_every_service() -> None:
    """Plain Python exits at once on a name that does not resolve."""
    job = make_job(workers=2, intranet="Service")
    there = Children(make_waiting_pods(job), services=(make_service(job, "worker", 0),))
    desired = plan(job, there, T0)
    assert creates(desired) == ["mnist-worker-1"]
    assert creates(desired, CONFIG_MAPS) == []


def test_a_service_looks_as_in_the_documents() -> None:
    job = make_job("wide-ande-deep-service", ps=1, intranet="Service")
    service = manifest(plan(job, Children(), T0), SERVICES, "wide-ande-deep-service-ps-0")
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert service["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "blockOwnerDeletion": True,
            "controller": True,
            "kind": "PaddleJob",
            "name": "wide-ande-deep-service",
            "uid": UID,
        }
    ]
    assert service["spec"] == {
        "clusterIP": "None",
        "ports": [{"port": 2379, "protocol": "TCP", "targetPort": 2379}],
        "publishNotReadyAddresses": True,
        "selector": {"paddle-res-name": "wide-ande-deep-service-ps-0"},
        "type": "ClusterIP",
    }


@pytest.mark.parametrize("intranet", ["PodIP", "Host"])
def test_only_service_mode_makes_services(intranet: str) -> None:
    job = make_job(ps=1, workers=1, intranet=intranet, host_port=35000)
    assert creates(plan(job, Children(), T0), SERVICES) == []


# Ports


def test_default_port_is_used_without_a_port_block() -> None:
    assert ports_of(make_job(workers=1)) == Ports(2379, 2379, 2379, 2397)


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_in_a_block_no_two_roles_share_a_port(intranet: str) -> None:
    assert ports_of(make_job(workers=1, intranet=intranet, host_port=35000)) == Ports(35000, 35001, 35002, 35018)


def test_in_a_block_each_pod_is_told_the_port_of_its_own_role() -> None:
    job = make_job(ps=1, workers=1, host_port=35000)
    told = {
        role: next(
            each["value"]
            for each in pod_variables(job, role, 0, requests_device=False, etcd="")
            if each["name"] == "PADDLE_PORT"
        )
        for role in (Role.PS, Role.WORKER)
    }
    assert told == {Role.PS: "35000", Role.WORKER: "35001"}


def test_port_block_is_written_before_the_first_pod() -> None:
    job = make_job(workers=1, intranet="Host")
    desired = plan(job, Children(), T0, PlanContext(free_host_port=35020))
    assert desired.status.host_port == 35020
    assert desired.waves == ()


def test_a_job_keeps_the_block_that_it_has() -> None:
    job = make_job(workers=1, intranet="Host", host_port=35040)
    assert plan(job, Children(), T0, PlanContext(free_host_port=35020)).status.host_port == 35040


@pytest.mark.parametrize(("intranet", "block"), [("PodIP", None), ("Service", None), ("Host", 35000)])
def test_on_a_cluster_only_the_host_network_takes_ports(intranet: str, block: int | None) -> None:
    assert PortBlocks.of(range(35000, 35100)).reserve(make_job(workers=1, intranet=intranet)) == block


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_jobs_on_one_machine_get_free_ports(intranet: str) -> None:
    blocks = PortBlocks([35000, 35020, 35040], lambda first: first != 35000, for_every_job=True)
    first = make_job(workers=1, intranet=intranet)
    other = msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, uid="another"))
    blocks.register([first, other])
    assert [blocks.reserve(job) for job in (first, other)] == [35020, 35040]


def test_where_no_block_is_free_the_job_waits_and_says_so() -> None:
    desired = plan(make_job(workers=1, intranet="Host"), Children(), T0)
    assert creates(desired) == []
    assert desired.status.phase == "Pending"
    assert not_running_reason(desired) == (
        "HostPortsExhausted",
        "every port block of --port-range belongs to an unfinished job: widen the range",
    )


# The digest, by which a barrier is known to be still true


def test_digest_changes_only_with_address_port_or_role() -> None:
    job = make_job(ps=1, workers=2)
    pods = make_waiting_pods(job)
    first = known(job, Children(pods))
    assert first
    later = known(job, Children(make_pods(job, nudged_for="x", restarts=3)))
    assert later
    assert later.digest == first.digest
    moved = known(job, Children((*pods[:-1], make_waiting_pod(job, "worker", 1, address="10.9.9.9"))))
    assert moved
    assert moved.digest != first.digest
    assert replace(first, ports=Ports(1, 2, 3, 4)).digest != first.digest


def test_the_digest_is_the_same_in_every_version_of_the_operator() -> None:
    """It is stored on running jobs: if an upgrade changed it, every one of them would be restarted."""
    job = make_job(ps=1, workers=2)
    found = known(job, Children(make_pods(job)))
    assert found
    assert found.digest == "3ce91968d942a744"


def test_an_elastic_job_knows_no_endpoints() -> None:
    job = make_job(workers=2, elastic=1)
    assert known(job, Children(make_pods(job))) is None


def test_the_hosts_text_of_nodes_does_not_make_a_barrier_untrue() -> None:
    job = make_job(workers=1, intranet="Host", host_port=35000)
    first, second = (known(job, Children(make_pods(job, node=node))) for node in ("node-a", "node-b"))
    assert first
    assert second
    assert first.digest == second.digest
