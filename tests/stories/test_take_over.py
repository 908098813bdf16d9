"""Jobs that the Go operator has left running go on under ours as if nothing had happened, and end as they should."""

import pytest

from testbed.hollow_script import starts
from tests.stories.go_operator import FINALIZER, NEWEST, SAMPLESET, GoJob, Version
from tests.stories.harness import FULL_JOBS, FULL_PODS, ClusterHarness, FullObject, on_both_planes, on_embedded_plane
from tests.stories.jobs import Job, make_job

pytestmark = on_embedded_plane

VERSIONS = pytest.mark.parametrize("version", [NEWEST, SAMPLESET], ids=str)


@pytest.fixture
def kubelet_speed() -> float:
    """The Go operator does not wake the containers that wait for its ConfigMap: they look again after 1 to 13 s."""
    return 20.0


def uids(pods: dict[str, FullObject]) -> dict[str, str]:
    return {name: pod.uid for name, pod in pods.items()}


async def without_finalizer(harness: ClusterHarness, name: str = "simple") -> FullObject:
    return await harness.wait_job(name, lambda job: FINALIZER not in job.metadata.finalizers)


@on_both_planes
@VERSIONS
@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
@pytest.mark.parametrize("roles", [{"workers": 2}, {"ps": 1, "workers": 2}], ids=["Collective", "PS"])
async def test_a_running_job_keeps_its_pods_and_ends_well(
    bare_harness: ClusterHarness, version: Version, intranet: str, roles: dict[str, int]
) -> None:
    harness = bare_harness
    before = await GoJob(harness, version, make_job("simple", intranet=intranet, **roles)).create_running()
    services, barrier = await harness.list_services(), await harness.get_barrier("simple")
    assert barrier
    async with harness.run_operator() as operator:
        job = await without_finalizer(harness)
        job = await harness.wait_job("simple", lambda job: job.status.get("ready") == f"{len(before)}/{len(before)}")
        assert (job.phase, job.status["startTime"]) == ("Running", "2023-06-01T10:00:00Z")
        assert uids(await harness.list_pods()) == uids(before)
        assert uids(await harness.list_services()) == uids(services)
        untouched = await harness.get_barrier("simple")
        assert untouched
        assert untouched.metadata.resource_version == barrier.metadata.resource_version
        await harness.exit_pods("simple-worker-*")
        job = await harness.wait_phase("simple", "Completed")
        assert job.status["worker"]["succeeded"] == 2
        await harness.wait_cleaned_up()
        assert not operator.created


@VERSIONS
async def test_second_take_over_changes_nothing(bare_harness: ClusterHarness, version: Version) -> None:
    harness = bare_harness
    before = await GoJob(harness, version, make_job("simple", ps=1, workers=1)).create_running()
    async with harness.run_operator():
        await without_finalizer(harness)
        await harness.wait_job("simple", lambda job: job.status.get("ready") == "2/2")
        await harness.run_unrelated_job("beside")  # so the operator had time for all that it writes
    taken_over = await harness.get_job("simple")
    async with harness.run_operator():
        await harness.submit(make_job("other", workers=1))
        await harness.wait_phase("other", "Running")  # so it has looked at both
        assert (await harness.get_job("simple")).metadata.resource_version == taken_over.metadata.resource_version
        assert uids(before).items() <= uids(await harness.list_pods()).items()


@VERSIONS
async def test_one_that_fails_after_the_take_over_names_its_cause(
    bare_harness: ClusterHarness, version: Version
) -> None:
    harness = bare_harness
    await GoJob(harness, version, make_job("simple", workers=2, cleanPodPolicy="Never")).create_running()
    async with harness.run_operator():
        await harness.exit_pods("simple-worker-1", code=2)
        job = await harness.wait_phase("simple", "Failed")
        assert job.condition("Failed")["message"].startswith("simple-worker-1 exited 2: a bad command line")
        await harness.wait_pods(lambda pods: all(pod.phase == "Failed" for pod in pods.values()))


@VERSIONS
async def test_one_that_waits_for_its_config_map_is_brought_to_run(
    bare_harness: ClusterHarness, version: Version
) -> None:
    """Its pods hang in an init container that nobody answers, or were promised a port that nobody knows: made anew."""
    harness = bare_harness
    go_job = GoJob(harness, version, make_job("simple", ps=1, workers=2))
    await go_job.create_job()
    await go_job.create_pods()
    await go_job.create_services()
    await go_job.write_status("Starting", {"starting": "all"})
    harness.nodes.script("*", starts(after=0.0), namespace=harness.namespace)
    async with harness.run_operator():
        await harness.wait_phase("simple", "Running")
        await harness.exit_pods("simple-worker-*")
        await harness.wait_phase("simple", "Completed")
        await harness.wait_cleaned_up()


@VERSIONS
async def test_one_of_which_only_some_pods_exist_is_brought_to_run(
    bare_harness: ClusterHarness, version: Version
) -> None:
    harness = bare_harness
    go_job = GoJob(harness, version, make_job("simple", workers=2))
    await go_job.create_job()
    go_job.roles = {"worker": 1}
    await go_job.create_pods()
    harness.nodes.script("*", starts(after=0.0), namespace=harness.namespace)
    async with harness.run_operator():
        await harness.wait_phase("simple", "Running")
        assert (await harness.get_environments("simple"))["simple-worker-1"]["PADDLE_TRAINERS_NUM"] == "2"


FINISHED: list[tuple[str, Job]] = [
    ("Completed", make_job("simple", workers=2, cleanPodPolicy="Never")),
    ("Failed", make_job("simple", workers=2)),
]


@pytest.mark.parametrize(("phase", "job"), FINISHED, ids=["Completed", "Failed"])
async def test_finished_go_job_is_not_rerun_and_its_pods_are_stopped(
    bare_harness: ClusterHarness, phase: str, job: Job
) -> None:
    """The Go operator leaves the peers of a failed pod running, and holding their GPUs."""
    harness = bare_harness
    go_job = GoJob(harness, NEWEST, job)
    before = await go_job.create_running()
    await harness.exit_pods("simple-worker-0", code=0 if phase == "Completed" else 1)
    await go_job.write_status(phase, {"succeeded" if phase == "Completed" else "failed": 1})
    async with harness.run_operator() as operator:
        await harness.wait_pods(lambda pods: all(pod.phase in ("Succeeded", "Failed") for pod in pods.values()))
        await without_finalizer(harness)
        assert uids(await harness.list_pods()) == uids(before)
        assert (await harness.get_job("simple")).phase == phase
        assert not operator.created


async def test_an_elastic_one_which_has_no_config_map_keeps_its_pods(bare_harness: ClusterHarness) -> None:
    harness = bare_harness
    go_job = GoJob(harness, SAMPLESET, make_job("simple", workers=2, elastic=1))
    await go_job.create_job()
    await go_job.create_pods()
    harness.nodes.script("*", starts(after=0.0), namespace=harness.namespace)
    before = dict(await harness.wait_pods(lambda pods: all(pod.phase == "Running" for pod in pods.values())))
    async with harness.run_operator(etcd="etcd:2379"):
        await harness.wait_phase("simple", "Running")
        assert uids(await harness.list_pods()) == uids(before)
    async with harness.run_operator():  # without an etcd nothing can be added, but what runs may end
        await harness.exit_pods("simple-worker-*")
        await harness.wait_phase("simple", "Completed")


async def test_scaling_after_take_over_restarts_all_ranks(bare_harness: ClusterHarness) -> None:
    harness = bare_harness
    before = await GoJob(harness, NEWEST, make_job("simple", workers=3)).create_running()
    async with harness.run_operator():
        await without_finalizer(harness)
        await harness.patch_spec("simple", {"worker": {"replicas": 2}})
        await harness.wait_running(1, "simple")
        pods = await harness.list_pods()
        assert pods.keys() == {"simple-worker-0", "simple-worker-1"}
        assert not set(uids(pods).values()) & set(uids(before).values())


# Deletion


@pytest.mark.parametrize("state", ["Running", "Completed"])
async def test_taken_over_job_is_deletable_without_an_operator(bare_harness: ClusterHarness, state: str) -> None:
    harness = bare_harness
    go_job = GoJob(harness, NEWEST, make_job("simple", workers=1))
    await go_job.create_running()
    await go_job.write_status(state, {"running": 1})
    async with harness.run_operator():
        await without_finalizer(harness)
    await harness.delete(FULL_JOBS, "simple")
    await harness.wait_deleted("simple")
    await harness.wait_cleaned_up()


async def test_deletion_finishes_when_an_operator_starts(bare_harness: ClusterHarness) -> None:
    harness = bare_harness
    await GoJob(harness, NEWEST, make_job("simple", ps=1, workers=1)).create_running()
    await harness.delete(FULL_JOBS, "simple")
    assert (await harness.get_job("simple")).metadata.deletion_timestamp
    async with harness.run_operator() as operator:
        await harness.wait_deleted("simple")
        await harness.wait_cleaned_up()
        assert not operator.created


async def test_deleted_while_ours_runs_it_goes_at_once_with_everything(bare_harness: ClusterHarness) -> None:
    harness = bare_harness
    await GoJob(harness, SAMPLESET, make_job("simple", workers=2, intranet="Service")).create_running()
    async with harness.run_operator():
        await harness.delete(FULL_JOBS, "simple")
        await harness.wait_deleted("simple")
        await harness.wait_cleaned_up()


async def test_a_pod_of_it_deleted_by_hand_is_replaced_with_all_others(bare_harness: ClusterHarness) -> None:
    harness = bare_harness
    before = await GoJob(harness, NEWEST, make_job("simple", workers=2)).create_running()
    async with harness.run_operator():
        await without_finalizer(harness)
        await harness.delete(FULL_PODS, "simple-worker-1")
        await harness.wait_running(1, "simple")
        pods = await harness.list_pods()
        assert not set(uids(pods).values()) & set(uids(before).values())
        addresses = [pods[f"simple-worker-{index}"].status["podIP"] for index in range(2)]
        seen = await harness.get_environments("simple")
        assert seen["simple-worker-0"]["PADDLE_TRAINERS"] == ",".join(addresses)
