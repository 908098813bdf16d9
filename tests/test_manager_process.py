"""The operator as the process `/manager`: flags, probes, shutdown, leader election."""

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
from paddle_operator.manager import LEASE_NAME, main, parser
from testbed.control_plane import ControlPlane
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits
from testbed.ports import find_free_ports
from testbed.watch_until import WAIT_TIMEOUT_SECONDS, watch_objects
from tests.stories.harness import FULL_JOBS, ClusterHarness
from tests.stories.jobs import make_job

EXAMPLE = Path("deploy/examples/wide_and_deep.yaml")


@asynccontextmanager
async def manager_process(control_plane: ControlPlane, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    kubeconfig = control_plane.write_kubeconfig("tester-22")
    command = [sys.executable, "-m", "paddle_operator.manager", f"--kubeconfig={kubeconfig}", *flags]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_process_completes_the_example_and_stops_on_sigterm(
    control_plane: ControlPlane, paddlejob_crd: None, namespace: str
) -> None:
    health, metrics = find_free_ports(2)
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
        watch_objects(client, FULL_JOBS, Scope(namespace)) as jobs,
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
        _, stderr = await asyncio.wait_for(process.communicate(), WAIT_TIMEOUT_SECONDS)
        assert process.returncode == 0, stderr.decode()
        assert '"message":"started"' in stderr.decode()
        assert "--initImage has no effect" in stderr.decode()
        lines = [json.loads(line) for line in stderr.decode().splitlines()]
        (switched,) = (place for place, line in enumerate(lines) if line.get("to") == "debug")
        assert not any(line["level"] == "debug" for line in lines[:switched])
        assert {line["method"] for line in lines[switched:] if line["message"] == "request"}, "a lease is given back"
        lease = await client.get(LEASES, Key(namespace, LEASE_NAME))
        assert not lease.spec.holder_identity, "the lease was given back"


async def test_failed_start_is_one_line_without_traceback(control_plane: ControlPlane) -> None:
    async with manager_process(control_plane, "--metrics-bind-address=nonsense") as process:
        _, stderr = await asyncio.wait_for(process.communicate(), WAIT_TIMEOUT_SECONDS)
    assert process.returncode == 1
    last = stderr.decode().strip().splitlines()[-1]
    assert "nonsense" in last
    assert "Traceback" not in stderr.decode()


def test_invalid_port_range_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--port-range=5"])
    assert "write FIRST,LAST, such as 35000,65000" in capsys.readouterr().err


@pytest.mark.parametrize("namespaces", [",", " ", "team-a,,team-b", "Team_A", "team-a team-b"])
def test_invalid_namespaces_are_refused(namespaces: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--namespace={namespaces}"])
    assert "is not a namespace: write one, or several as a,b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "expected"), [([], ("",)), (["--namespace="], ("",)), (["--namespace=a, b,a"], ("a", "b"))]
)
def test_namespace_flag(flags: list[str], expected: tuple[str, ...]) -> None:
    assert parser().parse_args(flags).namespace == expected


def test_flags_of_the_readme_are_accepted() -> None:
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
    ("flags", "expected"), [([], False), (["--leader-elect=true"], True), (["--leader-elect=false"], False)]
)
def test_boolean_flag_as_go_parses_it(flags: list[str], expected: bool) -> None:
    assert parser().parse_args(flags).leader_elect is expected


async def test_only_the_named_namespaces_are_reconciled(control_plane: ControlPlane, paddlejob_crd: None) -> None:
    ours = [await control_plane.create_namespace(f"team-{team}") for team in ("a", "b")]
    other = await control_plane.create_namespace("team-c")
    (metrics,) = find_free_ports(1)
    flags = [f"--namespace={', '.join(ours)}", "--health-probe-bind-address=0"]
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=2) as nodes,
        watch_objects(client, FULL_JOBS, Scope()) as jobs,
        manager_process(control_plane, *flags, f"--metrics-bind-address=127.0.0.1:{metrics}"),
    ):
        nodes.script("*-worker-*", exits(0, after=0.5))
        for namespace in (other, *ours):
            await control_plane.kubectl("apply", f"--namespace={namespace}", "-f", str(EXAMPLE))

        def phases() -> dict[str, str]:
            return {job.key.namespace: job.phase for job in jobs.store if job.key.namespace in (other, *ours)}

        await jobs.wait_until(lambda: all(phases().get(each) == "Completed" for each in ours))
        assert phases()[other] == ""
        text = await metrics_with('paddlejobs{phase="Completed"} 2.0', metrics)
    assert {f'workqueue_depth{{controller="paddlejob-{each}"' in text for each in ours} == {True}


async def metrics_with(line: str, port: int) -> str:
    """The metrics as soon as they have this line: the process observes its own writes through a watch."""
    text = ""
    async with aiohttp.ClientSession() as session, asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while line not in text:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as reply:
                text = await reply.text()
            await asyncio.sleep(0.05)
    return text


SIGNALS = {"killed": signal.SIGKILL, "drained": signal.SIGTERM, "cut-off": signal.SIGSTOP}
EXIT_CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 0, signal.SIGSTOP: 1}


@pytest.mark.timeout(600)
async def test_failover_creates_no_pod_twice(control_plane: ControlPlane, paddlejob_crd: None) -> None:
    """All signals run concurrently, each with two replicas of its own: a lease takes 15 s to expire."""
    async with (
        Client(control_plane.connection()) as client,
        HollowNodes(client, count=4) as nodes,
        asyncio.TaskGroup() as group,
    ):
        for name, number in SIGNALS.items():
            harness = ClusterHarness(control_plane, client, nodes, await control_plane.create_namespace(name))
            group.create_task(fail_over(control_plane, harness, number))


async def fail_over(control_plane: ControlPlane, harness: ClusterHarness, number: signal.Signals) -> None:
    flags = [f"--namespace={harness.namespace}", "--leader-elect", f"--leader-election-namespace={harness.namespace}"]
    flags += ["--health-probe-bind-address=0", "--metrics-bind-address=0"]
    async with (
        harness.open(),
        harness.record_writes() as written,
        watch_objects(harness.client, LEASES, Scope(harness.namespace)) as leases,
        manager_process(control_plane, *flags) as leader,
    ):
        await leases.until(LEASE_NAME, lambda lease: bool(lease.spec.holder_identity))
        async with manager_process(control_plane, *flags):
            await harness.submit(make_job("large", workers=60))
            await harness.wait_pods(lambda pods: len(pods) >= 5)
            leader.send_signal(number)
            await harness.wait_job("large", lambda job: (job.status or {}).get("ready") == "60/60")
            if number is signal.SIGSTOP:
                leader.send_signal(signal.SIGCONT)
            code = await asyncio.wait_for(leader.wait(), WAIT_TIMEOUT_SECONDS)
            assert code == EXIT_CODES[number], "a process that lost the lease ends by itself with an error"
    created = Counter(write.name for write in written.to("pods") if (write.verb, write.code) == ("create", 201))
    assert len(await harness.list_pods()) == 60
    assert set(created.values()) == {1}
    assert not [write for write in written.to("pods") if write.verb.startswith("delete")]
