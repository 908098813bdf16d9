"""The operator as the process that `/manager` is: its flags, its probes, its end."""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import LEASES, Key
from paddle_operator.manager import LEASE, main, parser
from testbed.control_plane import ControlPlane
from testbed.followed import PATIENCE_SECONDS, followed
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits
from testbed.ports import free_ports
from tests.stories.harness import FULL_JOBS, ClusterHarness
from tests.stories.jobs import a_job

EXAMPLE = Path("deploy/examples/wide_and_deep.yaml")


@asynccontextmanager
async def manager_process(control_plane: ControlPlane, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    kubeconfig = control_plane.kubeconfig_for("tester-22")
    command = [sys.executable, "-m", "paddle_operator.manager", f"--kubeconfig={kubeconfig}", *flags]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_process_runs_the_example_to_its_end_and_goes_when_told(
    control_plane: ControlPlane, paddlejob_crd: None, namespace: str
) -> None:
    health, metrics = free_ports(2)
    flags = [
        f"--namespace={namespace}",
        "--leader-elect",
        f"--leader-election-namespace={namespace}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        "--log-format=json",
        "--initImage=busybox",
    ]
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=2) as nodes,
        followed(client, FULL_JOBS, Scope(namespace)) as jobs,
        manager_process(control_plane, *flags) as process,
    ):
        await control_plane.kubectl("apply", f"--namespace={namespace}", "-f", str(EXAMPLE))
        await jobs.until("wide-ande-deep", lambda job: job.phase == "Running")
        await nodes.exit("*-worker-*", 0, namespace=namespace)
        done = await jobs.until("wide-ande-deep", lambda job: (job.status or {}).get("phase") == "Completed")
        assert done.status["ready"] == "4/4"
        process.send_signal(signal.SIGUSR1)
        async with aiohttp.ClientSession() as session:
            for path, port in (("healthz", health), ("readyz", health), ("metrics", metrics)):
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    assert answer.status == 200, await answer.text()
        process.send_signal(signal.SIGTERM)
        _, said = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
        assert process.returncode == 0, said.decode()
        assert '"message":"started"' in said.decode()
        assert "--initImage has no effect" in said.decode()
        lines = [json.loads(line) for line in said.decode().splitlines()]
        (switched,) = (place for place, line in enumerate(lines) if line.get("to") == "debug")
        assert not any(line["level"] == "debug" for line in lines[:switched])
        assert {line["method"] for line in lines[switched:] if line["message"] == "asked"}, "a lease is given back"
        lease = await client.get(LEASES, Key(namespace, LEASE))
        assert not lease.spec.holder_identity, "the lease was given back"


async def test_a_process_that_cannot_start_says_why_in_one_line(control_plane: ControlPlane) -> None:
    async with manager_process(control_plane, "--metrics-bind-address=nonsense") as process:
        _, said = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode == 1
    last = said.decode().strip().splitlines()[-1]
    assert "nonsense" in last
    assert "Traceback" not in said.decode()


def test_flags_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--port-range=5"])
    assert "write FIRST,LAST, such as 35000,65000" in capsys.readouterr().err


@pytest.mark.parametrize("written", [",", " ", "team-a,,team-b", "Team_A", "team-a team-b"])
def test_no_slip_of_the_pen_makes_it_look_after_every_namespace_or_none(
    written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([f"--namespace={written}"])
    assert "is no name of a namespace: write one, or several as a,b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "meant"), [([], ("",)), (["--namespace="], ("",)), (["--namespace=a, b,a"], ("a", "b"))]
)
def test_jobs_are_those_of_one_namespace_of_several_or_of_all(written: list[str], meant: tuple[str, ...]) -> None:
    assert parser().parse_args(written).namespace == meant


def test_every_flag_of_the_readme_is_known() -> None:
    flags = parser().parse_args(
        [
            "--leader-elect",
            "--namespace=paddle-system",
            "--scheduling=volcano",
            "--etcd-server=paddle-elastic-etcd.paddle-system.svc.cluster.local:2379",
            "--port-range=35000,65000",
            "--metrics-bind-address=:8080",
            "--health-probe-bind-address=:8081",
            "--zap-devel",
            "--zap-log-level=debug",
        ]
    )
    assert flags.namespace == ("paddle-system",)
    assert flags.leader_elect


@pytest.mark.parametrize(
    ("written", "meant"), [([], False), (["--leader-elect=true"], True), (["--leader-elect=false"], False)]
)
def test_a_flag_that_go_would_take_is_taken(written: list[str], meant: bool) -> None:
    assert parser().parse_args(written).leader_elect is meant


async def test_of_several_namespaces_each_has_its_jobs_looked_after_and_no_other_has(
    control_plane: ControlPlane, paddlejob_crd: None
) -> None:
    ours = [await control_plane.make_namespace(f"team-{team}") for team in ("a", "b")]
    other = await control_plane.make_namespace("team-c")
    (metrics,) = free_ports(1)
    flags = [f"--namespace={', '.join(ours)}", "--health-probe-bind-address=0"]
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=2) as nodes,
        followed(client, FULL_JOBS, Scope()) as jobs,
        manager_process(control_plane, *flags, f"--metrics-bind-address=127.0.0.1:{metrics}"),
    ):
        nodes.script("*-worker-*", exits(0, after=0.5))
        for namespace in (other, *ours):
            await control_plane.kubectl("apply", f"--namespace={namespace}", "-f", str(EXAMPLE))

        def phases() -> dict[str, str]:
            return {job.key.namespace: job.phase for job in jobs.store if job.key.namespace in (other, *ours)}

        await jobs.until_all(lambda: all(phases().get(each) == "Completed" for each in ours))
        assert phases()[other] == ""
        told = await metrics_with('paddlejobs{phase="Completed"} 2.0', metrics)
    assert {f'workqueue_depth{{controller="paddlejob-{each}"' in told for each in ours} == {True}


async def metrics_with(line: str, port: int) -> str:
    """What is told as soon as this line is in it: the process hears of what it wrote no sooner than we do."""
    told = ""
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_SECONDS):
        while line not in told:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as reply:
                told = await reply.text()
            await asyncio.sleep(0.05)
    return told


ENDS = {"killed": signal.SIGKILL, "drained": signal.SIGTERM, "cut-off": signal.SIGSTOP}
CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 0, signal.SIGSTOP: 1}


@pytest.mark.timeout(600)
async def test_a_leader_that_ends_in_mid_work_is_replaced_and_no_pod_is_made_twice(
    control_plane: ControlPlane, paddlejob_crd: None
) -> None:
    """All ways at once, each with two replicas of its own: to wait until a lease runs out takes 15 s."""
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=4) as nodes,
        asyncio.TaskGroup() as group,
    ):
        for way, word in ENDS.items():
            harness = ClusterHarness(control_plane, client, nodes, await control_plane.make_namespace(way))
            group.create_task(replaced(control_plane, harness, word))


async def replaced(control_plane: ControlPlane, harness: ClusterHarness, word: signal.Signals) -> None:
    flags = [f"--namespace={harness.namespace}", "--leader-elect", f"--leader-election-namespace={harness.namespace}"]
    flags += ["--health-probe-bind-address=0", "--metrics-bind-address=0"]
    async with (
        harness.open(),
        harness.record_writes() as written,
        followed(harness.client, LEASES, Scope(harness.namespace)) as leases,
        manager_process(control_plane, *flags) as leader,
    ):
        await leases.until(LEASE, lambda lease: bool(lease.spec.holder_identity))
        async with manager_process(control_plane, *flags):
            await harness.submit(a_job("large", workers=60))
            await harness.wait_pods(lambda pods: len(pods) >= 5)
            leader.send_signal(word)
            await harness.wait_job("large", lambda job: (job.status or {}).get("ready") == "60/60")
            if word is signal.SIGSTOP:
                leader.send_signal(signal.SIGCONT)
            code = await asyncio.wait_for(leader.wait(), PATIENCE_SECONDS)
            assert code == CODES[word], "who lost the lease ends by itself, and says so"
    made = Counter(write.name for write in written.to("pods") if (write.verb, write.code) == ("create", 201))
    assert len(await harness.list_pods()) == 60
    assert set(made.values()) == {1}
    assert not [write for write in written.to("pods") if write.verb.startswith("delete")]
