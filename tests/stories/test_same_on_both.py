"""The same story on a real control plane and on the embedded one: the same phases, conditions, events and objects."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.errors import Invalid
from paddle_operator.plan.metadata import ENDPOINTS_ANNOTATION
from paddle_operator.plan.status import PROGRESS_REASONS
from testbed.hollow_script import exits, image_never_pulls
from tests.stories.embedded import open_embedded_harness
from tests.stories.harness import FULL_JOBS, ClusterHarness, Event, FullObject, RecordingClient
from tests.stories.jobs import make_job

Story = Callable[[ClusterHarness], Awaitable[FullObject]]
# What kubelet says of an image that is not there: the one at first, and after a second the other.
IMAGE = re.compile(r'failed to pull and unpack image "\S+": not found|Back-off pulling image "\S+"')


async def servers_are_ended(harness: ClusterHarness) -> FullObject:
    await harness.submit(make_job(ps=2, workers=2, cleanPodPolicy="OnCompletion"))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-*")
    await harness.wait_phase("mnist", "Completed")
    await harness.wait_cleaned_up()
    return await harness.wait_finished_event("mnist", "Completed")


async def by_services(harness: ClusterHarness) -> FullObject:
    await harness.submit(make_job(ps=1, workers=2, intranet="Service", cleanPodPolicy="Always"))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-*")
    await harness.wait_phase("mnist", "Completed")
    await harness.wait_cleaned_up()
    return await harness.wait_finished_event("mnist", "Completed")


async def on_the_host_network(harness: ClusterHarness) -> FullObject:
    await harness.submit(make_job(ps=2, workers=2, intranet="Host", cleanPodPolicy="Never"))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-*")
    await harness.wait_phase("mnist", "Completed")
    await harness.wait_pods(lambda pods: all(pod.phase in ("Succeeded", "Failed") for pod in pods.values()))
    return await harness.wait_finished_event("mnist", "Completed")


async def one_worker_crashes(harness: ClusterHarness) -> FullObject:
    await harness.submit(make_job(workers=3, cleanPodPolicy="Never"))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-worker-1", code=139)
    await harness.wait_phase("mnist", "Failed")
    await harness.wait_pods(lambda pods: all(pod.phase == "Failed" for pod in pods.values()))
    return await harness.wait_finished_event("mnist", "Failed")


async def a_server_is_killed(harness: ClusterHarness) -> FullObject:
    await harness.submit(make_job(ps=1, workers=1, cleanPodPolicy="OnFailure"))
    await harness.wait_phase("mnist", "Running")
    await harness.exit_pods("mnist-ps-0", code=137)
    await harness.wait_phase("mnist", "Failed")
    await harness.wait_cleaned_up()
    return await harness.wait_finished_event("mnist", "Failed")


async def replicas_change(harness: ClusterHarness) -> FullObject:
    await harness.submit(make_job(workers=2))
    await harness.wait_phase("mnist", "Running")
    await harness.patch_spec("mnist", {"worker": {"replicas": 3}})
    await harness.wait_event("mnist", "Restarting")
    return await harness.wait_running(1)


async def an_image_is_not_there(harness: ClusterHarness) -> FullObject:
    harness.nodes.script("mnist-worker-0", image_never_pulls(), namespace=harness.namespace)
    await harness.submit(make_job(workers=1))
    await harness.wait_barrier("mnist")
    await harness.wait_event("mnist", "ImagePullFailed")
    return await harness.wait_not_running("mnist", "ImagePullFailed")


async def a_single_worker(harness: ClusterHarness) -> FullObject:
    harness.nodes.script("mnist-worker-0", exits(0, after=0.2), namespace=harness.namespace)
    await harness.submit(make_job(workers=1))
    await harness.wait_phase("mnist", "Completed")
    await harness.wait_cleaned_up()
    return await harness.wait_finished_event("mnist", "Completed")


STORIES: list[Story] = [
    servers_are_ended,
    by_services,
    on_the_host_network,
    one_worker_crashes,
    a_server_is_killed,
    replicas_change,
    an_image_is_not_there,
    a_single_worker,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_the_two_servers_tell_the_same_story(bare_harness: ClusterHarness, tmp_path: Path, story: Story) -> None:
    async with bare_harness.run_operator() as operator:
        on_cluster = await account(bare_harness, operator, story)
    async with open_embedded_harness(tmp_path) as harness, harness.run_operator() as operator:
        embedded = await account(harness, operator, story)
    assert embedded == on_cluster


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no worker": lambda spec: spec["worker"].update(replicas=0),
    "elastic without workers": lambda spec: spec.update(elastic=1, ps=spec.pop("worker")),
    "a network of its own": lambda spec: spec.update(intranet="Nowhere"),
    "a misspelt field": lambda spec: spec["worker"].update(replica=1),
    "gloo of the future": lambda spec: spec.update(withGloo=7),
    "no containers": lambda spec: spec["worker"]["template"]["spec"].update(containers=[]),
    "nobody": lambda spec: spec.clear(),
}
# What a real API server adds where its schema refuses: CEL is then not asked at all.
NOT_ASKED = re.compile(
    r", <nil>: Invalid value: (?:null|.*): some validation rules were not checked .*complete validation"
)


@pytest.mark.parametrize("wrong", WRONG)
async def test_the_two_servers_refuse_a_job_in_the_same_words(
    bare_harness: ClusterHarness, tmp_path: Path, wrong: str
) -> None:
    async with open_embedded_harness(tmp_path) as embedded:
        said = [await refusal(harness, WRONG[wrong]) for harness in (bare_harness, embedded)]
    assert said[1] == said[0]


async def refusal(harness: ClusterHarness, spoil: Callable[[dict[str, Any]], Any]) -> str:
    job = make_job(workers=2)
    spoil(job["spec"])
    job["metadata"]["namespace"] = harness.namespace
    with pytest.raises(Invalid) as told:
        await harness.client.create(FULL_JOBS, job, strict=True)
    words, asked = NOT_ASKED.subn("", told.value.status.message)
    return words.replace("is invalid: [", "is invalid: ").removesuffix("]") if asked else words


async def account(harness: ClusterHarness, operator: RecordingClient, story: Story) -> dict[str, Any]:
    """What a story leaves behind, without what is another each time: UIDs, addresses, times, names of nodes."""
    job = await story(harness)
    return {
        "status": told_of(job.status),
        "events": sorted((each.type, each.reason, IMAGE.sub("IMAGE", each.note)) for each in await news(harness)),
        "created": sorted((plain(each, harness.namespace) for each in operator.created), key=place),
        "pods": {name: (pod.phase, pod.status.get("reason")) for name, pod in (await harness.list_pods()).items()},
        "services": sorted(await harness.list_services()),
    }


async def news(harness: ClusterHarness) -> list[Event]:
    """Without progress, which is told as it is seen: who looks at which moment is chance."""
    return [each for each in await harness.list_events("mnist") if each.reason not in PROGRESS_REASONS]


def told_of(status: dict[str, Any]) -> dict[str, Any]:
    told = {name: status.get(name) for name in ("phase", "mode", "ready", "attempt", "observedGeneration", "hostPort")}
    counts: dict[str, Any] = {
        role: {name: value for name, value in status[role].items() if name != "refs"}
        for role in ("ps", "worker", "heter")
        if role in status
    }
    conditions = [
        (each["type"], each["status"], each["reason"], IMAGE.sub("IMAGE", each["message"]))
        for each in status["conditions"]
    ]
    return {**told, **counts, "conditions": conditions}


def place(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def plain(manifest: Any, namespace: str) -> Any:
    """A manifest without UIDs, addresses and the namespace's name."""
    if isinstance(manifest, dict):
        return {
            name: plain(value, namespace)
            for name, value in manifest.items()
            if name not in ("uid", ENDPOINTS_ANNOTATION) and not name.endswith("/job-uid") and name != "binaryData"
        }
    if isinstance(manifest, list):
        return [plain(each, namespace) for each in manifest]
    if isinstance(manifest, str):
        text = re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "ADDRESS", manifest.replace(namespace, "NAMESPACE"))
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    return manifest
