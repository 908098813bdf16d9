"""`paddlejob` against a real cluster: the same verbs, by --kubeconfig."""

from pathlib import Path

import yaml

from testbed.control_plane import ControlPlane
from testbed.hollow_script import exits
from tests.stories.harness import ClusterHarness
from tests.stories.jobs import make_job
from tests.support.paddlejob import Outcome, Paddlejob


async def test_a_job_is_run_looked_at_and_deleted_on_a_real_cluster(
    control_plane: ControlPlane, harness: ClusterHarness, tmp_path: Path
) -> None:
    command = Paddlejob(tmp_path / "state")

    async def paddlejob(*arguments: str | Path) -> Outcome:
        return await command(*arguments, "--kubeconfig", control_plane.kubeconfig, "-n", harness.namespace)

    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(make_job(ps=1, workers=2, cleanPodPolicy="Never")))
    harness.nodes.script("mnist-worker-*", exits(0, after=1), namespace=harness.namespace)

    ran = await paddlejob("run", path)
    assert ran.code == 0, ran
    assert "mnist  Completed  after " in ran.summary
    assert "mnist   Completed   PS     3/3" in (await paddlejob("get")).output
    page = (await paddlejob("describe", "mnist")).output
    assert "PADDLE_TRAINER_ENDPOINTS:" in page
    assert "mnist-worker-1   Completed" in page
    assert (await paddlejob("wait", "mnist")).code == 0
    assert "all 2 workers succeeded" in (await paddlejob("events", "mnist")).output
    assert (await paddlejob("delete", "mnist")).output == "mnist deleted\n"
    assert not command.state.exists(), "nothing of the embedded cluster was touched"


async def test_a_job_that_the_cluster_refuses_is_told_in_its_words(
    control_plane: ControlPlane, harness: ClusterHarness, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(make_job(workers=2, withGloo=7)))
    arguments = ("run", path, "--kubeconfig", control_plane.kubeconfig, "-n", harness.namespace)
    outcome = await Paddlejob(tmp_path / "state")(*arguments)
    assert outcome.code == 2
    assert "spec.withGloo is 7, but must be 0 (off), 1 (workers) or 2 (workers and servers)" in outcome.errors


async def test_a_job_is_suspended_and_resumed_on_a_real_cluster(
    control_plane: ControlPlane, harness: ClusterHarness, tmp_path: Path
) -> None:
    async def paddlejob(*arguments: str) -> Outcome:
        where = ("--kubeconfig", str(control_plane.kubeconfig), "-n", harness.namespace)
        return await Paddlejob(tmp_path / "state")(*arguments, *where)

    await harness.submit(make_job(ps=1, workers=2, backoffLimit=3, activeDeadlineSeconds=600))
    await harness.wait_phase("mnist", "Running")
    rests = await paddlejob("suspend", "mnist")
    assert rests.code == 0, rests
    assert rests.output.splitlines()[-1].startswith("mnist is suspended and its pods are gone")
    assert await harness.list_pods() == {}
    page = (await paddlejob("describe", "mnist")).output
    assert "Retries:     0 of 3 used" in page
    assert "of 600 s left; the deadline is paused while the job is suspended" in page
    runs = await paddlejob("resume", "mnist")
    assert runs.code == 0, runs
    assert "mnist  Running: all pods run" in runs.output
    assert len(await harness.list_pods()) == 3
