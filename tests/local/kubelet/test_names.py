"""Names resolve inside pods: their own, and those of Services, also ones that come later."""

from typing import Any

import msgspec

from paddle_operator.kube.objects import Key
from paddle_operator.local.kubelet.hosts_file import Service, cluster_records, render_hosts
from paddle_operator.local.kubelet.pod import LocalPod
from tests.local.kubelet.bed import PODS, SERVICES, Bed, pod

WAITS = "while :; do sleep 0.1; done"


def headless(name: str, **spec: Any) -> dict[str, Any]:
    """As the operator makes one for each pod."""
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"app": name},
        "ports": [{"port": 2379}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service | spec}


def a_pod(name: str, address: str, *, ready: bool = True, namespace: str = "ml", **spec: Any) -> LocalPod:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    manifest = {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {"app": "mnist"}},
        "spec": spec,
        "status": {"phase": "Running", "podIP": address, "conditions": conditions},
    }
    return msgspec.convert(manifest, LocalPod)


def a_service(name: str = "mnist", **spec: Any) -> Service:
    whole = {"clusterIP": "None", "selector": {"app": "mnist"}} | spec
    return msgspec.convert({"metadata": {"name": name, "namespace": "ml"}, "spec": whole}, Service)


def lines(text: str) -> dict[str, str]:
    """The address of each name, as whoever reads the file from the top finds it."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        address, *names = line.split("#")[0].split() or [""]
        for name in names:
            found.setdefault(name, address)
    return found


def test_a_headless_service_is_each_of_its_pods_under_every_spelling() -> None:
    pods = [a_pod("b", "127.16.1.10"), a_pod("a", "127.16.1.9")]
    names = cluster_records([a_service()], pods)
    assert [name.address for name in names] == ["127.16.1.9", "127.16.1.10"]
    found = lines(render_hosts(pods[0], "127.16.1.10", names))
    for name in ("mnist", "mnist.ml", "mnist.ml.svc", "mnist.ml.svc.cluster.local"):
        assert found[name] == "127.16.1.9"


def test_in_another_namespace_the_short_name_is_not_known() -> None:
    stranger = a_pod("other", "127.16.1.1", namespace="web")
    found = lines(render_hosts(stranger, "127.16.1.1", cluster_records([a_service()], [a_pod("a", "127.16.1.9")])))
    assert "mnist" not in found
    assert found["mnist.ml"] == "127.16.1.9"


def test_a_pod_with_a_host_name_and_a_subdomain_has_a_name_of_its_own() -> None:
    own = a_pod("a", "127.16.1.9", hostname="rank-0", subdomain="mnist")
    found = lines(render_hosts(own, "127.16.1.9", cluster_records([a_service()], [own])))
    assert found["rank-0.mnist"] == found["rank-0.mnist.ml.svc.cluster.local"] == found["rank-0"] == "127.16.1.9"


def test_a_pod_that_is_not_ready_is_named_only_where_the_service_says_so() -> None:
    unready = [a_pod("a", "127.16.1.9", ready=False)]
    assert cluster_records([a_service()], unready) == ()
    assert len(cluster_records([a_service(publishNotReadyAddresses=True)], unready)) == 1


def test_a_service_with_a_cluster_address_is_its_first_pod() -> None:
    pods = [a_pod("b", "127.16.1.10"), a_pod("a", "127.16.1.9")]
    assert [name.address for name in cluster_records([a_service(clusterIP="10.96.0.7")], pods)] == ["127.16.1.9"]


def test_a_service_names_only_pods_that_have_all_its_labels() -> None:
    assert cluster_records([a_service(selector={"app": "mnist", "rank": "0"})], [a_pod("a", "127.16.1.9")]) == ()


def test_a_service_without_a_selector_and_one_of_another_namespace_name_nothing() -> None:
    assert cluster_records([a_service(selector=None)], [a_pod("a", "127.16.1.9")]) == ()
    assert cluster_records([a_service()], [a_pod("a", "127.16.1.9", namespace="web")]) == ()


def test_a_pod_on_the_hosts_network_sees_the_machines_names_and_its_nodes() -> None:
    own = a_pod("a", "127.16.0.1", hostNetwork=True, nodeName="local-1")
    found = lines(render_hosts(own, "127.16.0.1", (), "10.1.1.1 printer\n"))
    assert (found["printer"], found["local-1"]) == ("10.1.1.1", "127.16.0.1")


def test_host_aliases_are_there() -> None:
    aliases = [{"ip": "10.0.0.9", "hostnames": ["license", "license.example"]}]
    assert lines(render_hosts(a_pod("a", "127.16.1.9", hostAliases=aliases), "127.16.1.9", ()))["license"] == "10.0.0.9"


async def test_pods_find_each_other_by_the_names_of_their_services(bed: Bed) -> None:
    await bed.create(headless("mnist-ps-0"), SERVICES)
    await bed.create(pod("mnist-ps-0", WAITS, metadata={"labels": {"app": "mnist-ps-0"}}))
    server = await bed.running("mnist-ps-0")
    names = ["mnist-ps-0", "mnist-ps-0.default.svc"]
    script = "; ".join(f"getent ahostsv4 {name} | head -1 | cut -d' ' -f1" for name in names)
    assert (await bed.log(await bed.run("asks", script))).split() == [server.address] * 2


async def test_a_name_that_comes_later_resolves_in_a_pod_that_runs_already(bed: Bed) -> None:
    await bed.create(pod("early", "echo begun; until getent ahostsv4 mnist-ps-0 >/dev/null; do sleep 0.02; done"))
    await bed.printed(await bed.running("early"), "begun")
    await bed.create(pod("mnist-ps-0", WAITS, metadata={"labels": {"app": "mnist-ps-0"}}))
    await bed.running("mnist-ps-0")
    await bed.create(headless("mnist-ps-0"), SERVICES)
    assert (await bed.finished("early")).phase == "Succeeded"
    await bed.client.delete(PODS, Key(bed.namespace, "mnist-ps-0"), grace_seconds=0)
