"""Every YAML of the documents and of deploy/, applied as it stands, does what its text says.

What the operator wrote for each is in golden/, read by eye beside the documents' "resulting" objects.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from testbed.request import RequestError
from tests.stories import golden
from tests.stories.harness import ClusterHarness, FullObject, RecordingClient

ROOT = Path(__file__).parent.parent.parent
CORPUS = {path.stem: path for path in sorted((ROOT / "tests/corpus").glob("*.yaml"))}
EXAMPLES = {path.stem: path for path in sorted((ROOT / "deploy/examples").glob("*.yaml"))}
ELASTIC = ROOT / "deploy/elastic/resnet.yaml"
EVERY = CORPUS | EXAMPLES

VOLCANO = {"user-guide-3", "wide_and_deep_volcano"}
NEEDS_A_CLAIM = "user-guide-5"
NEEDS_A_VOLUME = "retries"  # and brings its claim along
DECIDED_BY_THE_FIRST = "success"
# What the user guide has beside paddlejob-demo-1.
VOLUME_AND_CLAIM = """
---
apiVersion: v1
kind: PersistentVolume
metadata:
  name: nfs-pv
spec:
  capacity:
    storage: 10Gi
  volumeMode: Filesystem
  accessModes:
    - ReadWriteOnce
  persistentVolumeReclaimPolicy: Recycle
  storageClassName: slow
  mountOptions:
    - hard
    - nfsvers=4.1
  nfs:
    path: /nas
    server: 10.12.201.xx

---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: nfs-pvc
spec:
  accessModes:
    - ReadWriteOnce
  volumeMode: Filesystem
  resources:
    requests:
      storage: 10Gi
  storageClassName: slow
  volumeName: nfs-pv
"""


VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata:
  name: {namespace}-checkpoints
spec:
  capacity:
    storage: 1Gi
  accessModes:
    - ReadWriteMany
  persistentVolumeReclaimPolicy: Retain
  claimRef:
    namespace: {namespace}
    name: resnet-checkpoints
  hostPath:
    path: /checkpoints
"""


def name_in(path: Path) -> str:
    return str(next(yaml.safe_load_all(path.read_text()))["metadata"]["name"])


def keeps_pods(path: Path) -> bool:
    """Whether the pods of a completed job stay: OnFailed is the Go operator's own slip for OnFailure."""
    spec = next(yaml.safe_load_all(path.read_text()))["spec"]
    return (spec.get("cleanPodPolicy") or spec.get("cleanPolicy")) in ("Never", "OnFailed")


@pytest.fixture
async def volume_and_claim(harness: ClusterHarness) -> AsyncIterator[None]:
    await harness.apply(VOLUME_AND_CLAIM)
    yield
    # Otherwise the controller manager would start a pod that empties 10.12.201.xx.
    await harness.kubectl("patch", "pv/nfs-pv", "--patch", '{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}')
    await harness.kubectl("delete", "pvc/nfs-pvc", "pv/nfs-pv", "--wait=false")


async def live_to_the_end(
    harness: ClusterHarness, name: str, *, keeps: bool, done: str = "worker-*"
) -> tuple[FullObject, dict[str, FullObject]]:
    """To Completed; the job then, and its pods as they were while it ran."""
    await harness.wait_phase(name, "Running")
    pods = await harness.list_pods()
    await harness.exit_pods(f"{name}-{done}")
    job = await harness.wait_phase(name, "Completed")
    if keeps:
        await harness.wait_pods(lambda left: all(pod.phase in ("Succeeded", "Failed") for pod in left.values()))
        assert (await harness.list_pods()).keys() == pods.keys()
    else:
        await harness.wait_cleaned_up()
    return job, pods


@pytest.fixture
async def volume(harness: ClusterHarness) -> AsyncIterator[None]:
    """As a cluster has it whose storage can be mounted by several nodes."""
    await harness.apply(VOLUME.format(namespace=harness.namespace))
    yield
    await harness.kubectl("delete", f"pv/{harness.namespace}-checkpoints", "--wait=false")


@pytest.mark.parametrize(
    "document", sorted(EVERY.keys() - VOLCANO - {NEEDS_A_CLAIM, NEEDS_A_VOLUME, DECIDED_BY_THE_FIRST})
)
async def test_it_runs_to_its_end(
    document: str, harness: ClusterHarness, operator: RecordingClient, golden_update: bool
) -> None:
    path = EVERY[document]
    await harness.apply(path)
    job, pods = await live_to_the_end(harness, name_in(path), keeps=keeps_pods(path))
    golden.compare(document, golden.render(job, pods.values(), operator.created), update=golden_update)


async def test_the_user_guides_job_gets_its_volume(
    harness: ClusterHarness, operator: RecordingClient, volume_and_claim: None, golden_update: bool
) -> None:
    path = CORPUS[NEEDS_A_CLAIM]
    await harness.apply(path)
    job, pods = await live_to_the_end(harness, name_in(path), keeps=keeps_pods(path))
    assert all(pod.spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "nfs-pvc"} for pod in pods.values())
    golden.compare(NEEDS_A_CLAIM, golden.render(job, pods.values(), operator.created), update=golden_update)


async def test_the_example_that_is_tried_again_gets_its_volume(
    harness: ClusterHarness, operator: RecordingClient, volume: None, golden_update: bool
) -> None:
    path = EXAMPLES[NEEDS_A_VOLUME]
    await harness.apply(path)
    job, pods = await live_to_the_end(harness, name_in(path), keeps=keeps_pods(path))
    golden.compare(NEEDS_A_VOLUME, golden.render(job, pods.values(), operator.created), update=golden_update)


async def test_example_success_policy_ignores_the_second_worker(
    harness: ClusterHarness, operator: RecordingClient, golden_update: bool
) -> None:
    path = EXAMPLES[DECIDED_BY_THE_FIRST]
    await harness.apply(path)
    job, pods = await live_to_the_end(harness, name_in(path), keeps=keeps_pods(path), done="worker-0")
    golden.compare(DECIDED_BY_THE_FIRST, golden.render(job, pods.values(), operator.created), update=golden_update)


@pytest.mark.parametrize("document", sorted(VOLCANO))
async def test_pods_for_volcano_wait_for_volcano_and_then_run(
    document: str, harness: ClusterHarness, operator: RecordingClient, golden_update: bool
) -> None:
    """The operator has no --scheduling=volcano here, so that the templates' schedulerName is all there is to it."""
    path = EVERY[document]
    name = name_in(path)
    await harness.apply(next(yaml.safe_load_all(path.read_text())))
    await harness.wait_not_running(name, "WaitingForAddresses")
    unbound = {
        pod: each for pod, each in (await harness.list_pods()).items() if each.spec["schedulerName"] == "volcano"
    }
    assert unbound.keys() >= {f"{name}-worker-0", f"{name}-worker-1"}
    for pod, each in unbound.items():
        assert "nodeName" not in each.spec
        assert "conditions" not in each.status  # kube-scheduler has not even looked at it
        await bind(harness, pod)
    job, pods = await live_to_the_end(harness, name, keeps=True)
    golden.compare(document, golden.render(job, pods.values(), operator.created), update=golden_update)


async def bind(harness: ClusterHarness, pod: str) -> None:
    """As a scheduler does."""
    target = f'{{"apiVersion": "v1", "kind": "Node", "name": "{harness.nodes[0]}"}}'
    binding = f'{{"apiVersion": "v1", "kind": "Binding", "metadata": {{"name": "{pod}"}}, "target": {target}}}'
    path = f"/api/v1/namespaces/{harness.namespace}/pods/{pod}/binding"
    await harness.kubectl("create", f"--raw={path}", "--filename=-", stdin=binding)


async def test_only_the_pod_group_is_refused_without_volcano(
    harness: ClusterHarness,
) -> None:
    with pytest.raises(RequestError) as refused:
        await harness.apply(CORPUS["user-guide-3"])
    complaints = [line for line in str(refused.value).splitlines() if "no matches for kind" in line]
    assert len(complaints) == 1
    assert 'no matches for kind "PodGroup" in version "scheduling.volcano.sh/v1beta1"' in complaints[0]


async def test_deepfm_which_says_on_failed_is_cleaned_when_it_fails(harness: ClusterHarness) -> None:
    await harness.apply(CORPUS["go-deepfm"])
    await harness.wait_phase("deepfm", "Running")
    await harness.exit_pods("deepfm-worker-1", code=1)
    await harness.wait_phase("deepfm", "Failed")
    await harness.wait_cleaned_up()


async def test_the_elastic_example_waits_for_an_etcd_and_runs_with_one(
    bare_harness: ClusterHarness, golden_update: bool
) -> None:
    harness = bare_harness
    async with harness.run_operator():
        await harness.apply(ELASTIC)
        job = await harness.wait_not_running("resnet-elastic", "EtcdNotConfigured")
        assert "--etcd-server" in job.condition("Running")["message"]
        assert not await harness.list_pods()
    async with harness.run_operator(etcd="paddle-elastic-etcd.paddle-system.svc.cluster.local:2379") as operator:
        job, pods = await live_to_the_end(harness, "resnet-elastic", keeps=True)
        golden.compare("resnet-elastic", golden.render(job, pods.values(), operator.created), update=golden_update)
