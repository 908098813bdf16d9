"""Names resolve inside pods: their own and those of Services, including later ones."""

from typing import Any

import msgspec

from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.hosts_file import Service, cluster_records, render_hosts
from paddle_operator.local.kubelet.pod import LocalPod
from tests.local.kubelet.harness import PODS, SERVICES, NodeHarness, make_pod

RUNS_UNTIL_SIGTERM = "while :; do sleep 0.1; done"


def headless(name: str, **spec: Any) -> dict[str, Any]:
    """As the operator creates one for each pod."""
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"app": name},
        "ports": [{"port": 2379}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service | spec}


def decoded_pod(name: str, address: str, *, ready: bool = True, namespace: str = "ml", **spec: Any) -> LocalPod:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    manifest = {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {"app": "mnist"}},
        "spec": spec,
        "status": {"phase": "Running", "podIP": address, "conditions": conditions},
    }
    return msgspec.convert(manifest, LocalPod)


def decoded_service(name: str = "mnist", **spec: Any) -> Service:
    service_spec = {"clusterIP": "None", "selector": {"app": "mnist"}} | spec
    return msgspec.convert({"metadata": {"name": name, "namespace": "ml"}, "spec": service_spec}, Service)


def addresses(text: str) -> dict[str, str]:
    """The address of each name: the first line with the name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        address, *names = line.split("#")[0].split() or [""]
        for name in names:
            found.setdefault(name, address)
    return found


def test_headless_service_resolves_to_each_pod_by_all_names() -> None:
    pods = [decoded_pod("b", "127.16.1.10"), decoded_pod("a", "127.16.1.9")]
    names = cluster_records([decoded_service()], pods)
    assert [name.address for name in names] == ["127.16.1.9", "127.16.1.10"]
    found = addresses(render_hosts(pods[0], "127.16.1.10", names))
    for name in ("mnist", "mnist.ml", "mnist.ml.svc", "mnist.ml.svc.cluster.local"):
        assert found[name] == "127.16.1.9"


def test_short_name_does_not_resolve_in_another_namespace() -> None:
    foreign = decoded_pod("other", "127.16.1.1", namespace="web")
    found = addresses(
        render_hosts(foreign, "127.16.1.1", cluster_records([decoded_service()], [decoded_pod("a", "127.16.1.9")]))
    )
    assert "mnist" not in found
    assert found["mnist.ml"] == "127.16.1.9"


def test_hostname_and_subdomain_give_a_pod_its_own_name() -> None:
    own = decoded_pod("a", "127.16.1.9", hostname="rank-0", subdomain="mnist")
    found = addresses(render_hosts(own, "127.16.1.9", cluster_records([decoded_service()], [own])))
    assert found["rank-0.mnist"] == found["rank-0.mnist.ml.svc.cluster.local"] == found["rank-0"] == "127.16.1.9"


def test_unready_pod_needs_publish_not_ready_addresses() -> None:
    unready = [decoded_pod("a", "127.16.1.9", ready=False)]
    assert cluster_records([decoded_service()], unready) == ()
    assert len(cluster_records([decoded_service(publishNotReadyAddresses=True)], unready)) == 1


def test_service_with_cluster_ip_resolves_to_its_first_pod() -> None:
    pods = [decoded_pod("b", "127.16.1.10"), decoded_pod("a", "127.16.1.9")]
    assert [name.address for name in cluster_records([decoded_service(clusterIP="10.96.0.7")], pods)] == ["127.16.1.9"]


def test_service_selects_only_pods_with_all_labels() -> None:
    assert (
        cluster_records([decoded_service(selector={"app": "mnist", "rank": "0"})], [decoded_pod("a", "127.16.1.9")])
        == ()
    )


def test_service_without_matching_pods_has_no_records() -> None:
    assert cluster_records([decoded_service(selector=None)], [decoded_pod("a", "127.16.1.9")]) == ()
    assert cluster_records([decoded_service()], [decoded_pod("a", "127.16.1.9", namespace="web")]) == ()


def test_host_network_pod_sees_the_machines_hosts() -> None:
    own = decoded_pod("a", "127.16.0.1", hostNetwork=True, nodeName="local-1")
    found = addresses(render_hosts(own, "127.16.0.1", (), "10.1.1.1 printer\n"))
    assert (found["printer"], found["local-1"]) == ("10.1.1.1", "127.16.0.1")


def test_host_aliases() -> None:
    aliases = [{"ip": "10.0.0.9", "hostnames": ["license", "license.example"]}]
    assert (
        addresses(render_hosts(decoded_pod("a", "127.16.1.9", hostAliases=aliases), "127.16.1.9", ()))["license"]
        == "10.0.0.9"
    )


async def test_service_name_resolves_in_another_pod(harness: NodeHarness) -> None:
    await harness.create(headless("mnist-ps-0"), SERVICES)
    await harness.create(make_pod("mnist-ps-0", RUNS_UNTIL_SIGTERM, metadata={"labels": {"app": "mnist-ps-0"}}))
    server = await harness.wait_running("mnist-ps-0")
    names = ["mnist-ps-0", "mnist-ps-0.default.svc"]
    script = "; ".join(f"getent ahostsv4 {name} | head -1 | cut -d' ' -f1" for name in names)
    assert (await harness.read_log(await harness.run_pod("asks", script))).split() == [server.address] * 2


async def test_later_service_resolves_in_a_running_pod(harness: NodeHarness) -> None:
    await harness.create(
        make_pod("early", "echo started; until getent ahostsv4 mnist-ps-0 >/dev/null; do sleep 0.02; done")
    )
    await harness.wait_printed(await harness.wait_running("early"), "started")
    await harness.create(make_pod("mnist-ps-0", RUNS_UNTIL_SIGTERM, metadata={"labels": {"app": "mnist-ps-0"}}))
    await harness.wait_running("mnist-ps-0")
    await harness.create(headless("mnist-ps-0"), SERVICES)
    assert (await harness.wait_finished("early")).phase == "Succeeded"
    await harness.client.delete(PODS, Key(harness.namespace, "mnist-ps-0"), grace_seconds=0)
