"""The operator as the process that `/manager` is: its flags, its probes, its end."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.objects import LEASES, Key
from paddle_operator.manager import LEASE, main, parser
from testbed.control_plane import ControlPlane
from testbed.followed import followed
from testbed.hollow import HollowNodes
from testbed.hollow_script import exits
from testbed.ports import free_ports
from tests.stories.stage import WHOLE_JOBS

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
        followed(client, WHOLE_JOBS, Scope(namespace)) as jobs,
        manager_process(control_plane, *flags) as process,
    ):
        nodes.script("*-worker-*", exits(0, after=0.5))
        await control_plane.kubectl("apply", f"--namespace={namespace}", "-f", str(EXAMPLE))
        done = await jobs.until("wide-ande-deep", lambda job: (job.status or {}).get("phase") == "Completed")
        assert done.status["ready"] == "4/4"
        async with aiohttp.ClientSession() as session:
            for path, port in (("healthz", health), ("readyz", health), ("metrics", metrics)):
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    assert answer.status == 200, await answer.text()
        process.send_signal(signal.SIGTERM)
        _, said = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0, said.decode()
        assert '"message":"started"' in said.decode()
        assert "--initImage has no effect" in said.decode()
        lease = await client.get(LEASES, Key(namespace, LEASE))
        assert not lease.spec.holder_identity, "the lease was given back"


async def test_a_process_that_cannot_start_says_why_in_one_line(control_plane: ControlPlane) -> None:
    async with manager_process(control_plane, "--metrics-bind-address=nonsense") as process:
        _, said = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    last = said.decode().strip().splitlines()[-1]
    assert "nonsense" in last
    assert "Traceback" not in said.decode()


def test_flags_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--port-range=5"])
    assert "write FIRST,LAST, such as 35000,65000" in capsys.readouterr().err


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
    assert flags.namespace == "paddle-system"
