"""A control plane to measure on, and the programs that run beside it.

On a quiet cluster the controller manager and the scheduler are stopped once the namespaces exist: on two cores their
work on every pod would be measured, too, and the garbage collector would delete pods whose owner and node were never
created. On a live cluster they run, since a load is measured with everything that a pod costs.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.program import Options
from paddle_operator.api.paddlejob import API_VERSION, GROUP, PLURAL
from paddle_operator.manager import LEASE_NAME
from testbed.audit import AuditLog
from testbed.control_plane import ControlPlane
from testbed.ports import LOOPBACK
from testbed.progress import Progress
from testbed.request import RequestError, send

CHECKOUT = Path(__file__).parent.parent
CRD_NAME = f"{PLURAL}.{GROUP}"
EXIT_TIMEOUT_SECONDS = 5.0
LEADER_TIMEOUT_SECONDS = 100.0
DELETE_TRIES = 5  # deleting many pods may exceed the request timeout; each try continues with the remaining ones

Figures = dict[str, float]


class ProgramError(RuntimeError):
    """A program ended without its figures; its own message is on standard error."""


class Program:
    """A process that prints figures as lines of JSON."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._name = name
        self._process = process

    async def read_figures(self) -> Figures:
        """Read the next line. Raises ProgramError at EOF."""
        assert self._process.stdout
        line = await self._process.stdout.readline()
        if not line:
            raise ProgramError(f"the program {self._name} ended with code {await self._process.wait()} and no figure")
        return msgspec.json.decode(line, type=Figures)

    def resume(self) -> None:
        """Signal the program to continue."""
        assert self._process.stdin
        self._process.stdin.write(b".")

    def stop(self) -> None:
        """Send SIGTERM unless the program has exited."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    async def wait(self) -> None:
        await self._process.wait()


class BenchCluster:
    def __init__(self, control_plane: ControlPlane, progress: Progress) -> None:
        self.progress = progress
        self.filled: Counter[str] = Counter()  # pods by the namespace's purpose
        self._control_plane = control_plane
        self._namespaces: dict[str, str] = {}

    @classmethod
    async def create_quiet(
        cls, control_plane: ControlPlane, namespaces: Sequence[str], progress: Progress
    ) -> "BenchCluster":
        """A cluster with a namespace per purpose, of which only the API server and etcd run."""
        cluster = cls(control_plane, progress)
        await cluster._create_namespaces(namespaces)
        await control_plane.scheduler.stop()
        await control_plane.controller_manager.stop()
        return cluster

    @classmethod
    async def create_live(
        cls, control_plane: ControlPlane, namespaces: Sequence[str], progress: Progress
    ) -> "BenchCluster":
        """A cluster with a namespace per purpose and all components running; the garbage collector knows our kind."""
        cluster = cls(control_plane, progress)
        await cluster._create_namespaces(namespaces)
        await control_plane.controller_manager.kill()  # it looks for new kinds only every 30 s
        await control_plane.controller_manager.start()
        return cluster

    async def _create_namespaces(self, namespaces: Sequence[str]) -> None:
        crd = CHECKOUT / "deploy" / "v1" / "crd.yaml"
        await self._control_plane.kubectl("apply", "--server-side", "-f", str(crd))
        for purpose in namespaces:
            self._namespaces[purpose] = await self._control_plane.create_namespace(purpose)

    @property
    def audit(self) -> AuditLog:
        return self._control_plane.audit

    def common_options(self, purpose: str, user: str = "tester-0") -> dict[str, Any]:
        """The options of every program. The user is not an administrator, whom the API server never throttles."""
        kubeconfig = self._control_plane.write_kubeconfig(user)
        return {"kubeconfig": str(kubeconfig), "namespace": self._namespaces[purpose]}

    def manager(
        self, purpose: str, port: int, user: str = "tester-0", metrics_port: int = 0
    ) -> AbstractAsyncContextManager[Program]:
        """Run the operator as users do, with its probes on this port of the loopback address."""
        common = self.common_options(purpose, user)
        return self.start_process(
            "paddle_operator.manager",
            f"--kubeconfig={common['kubeconfig']}",
            f"--namespace={common['namespace']}",
            "--leader-elect",
            f"--leader-election-namespace={common['namespace']}",
            f"--health-probe-bind-address={LOOPBACK}:{port}",
            f"--metrics-bind-address={LOOPBACK}:{metrics_port}",
            "--log-level=warning",
        )

    async def wait_for_leader(self, purpose: str) -> None:
        """Wait until the operator of a namespace holds the lease."""
        lease = f"lease/{LEASE_NAME}"
        # Waiting for a jsonpath fails at once while the lease does not exist.
        for condition in ("create", "jsonpath={.spec.holderIdentity}"):
            arguments = ("--namespace", self._namespaces[purpose], "wait", lease, f"--for={condition}")
            await self._control_plane.kubectl(*arguments, f"--timeout={LEADER_TIMEOUT_SECONDS:.0f}s")

    @property
    def etcd(self) -> str:
        flag = "--listen-client-urls="
        return next(each.removeprefix(flag) for each in self._control_plane.etcd.command if each.startswith(flag))

    async def run(self, module: str, options: Options) -> Figures:
        """Run a program to its end and return its last line of figures."""
        last: Figures = {}
        async with self.start_program(module, options) as program:
            while True:
                try:
                    last = await program.read_figures()
                except ProgramError:
                    if not last:
                        raise
                    return last
                if "pods" in last:
                    self.progress.update(f"  {last['pods']:,.0f} pods")

    def start_program(self, name: str, options: Options) -> AbstractAsyncContextManager[Program]:
        """Start a program of bench/programs."""
        return self.start_process(f"bench.programs.{name}", msgspec.json.encode(options).decode())

    @asynccontextmanager
    async def start_process(self, module: str, *arguments: str) -> AsyncIterator[Program]:
        """Start a process that is to exit by itself; it is killed if it does not."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            yield Program(module, process)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), EXIT_TIMEOUT_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def restart_api_server(self) -> None:
        """Kill and restart the API server, which cuts every watch and connection."""
        await self._control_plane.api_server.kill()
        await self._control_plane.recover()

    async def reapply_crd(self) -> None:
        """Apply the CRD again, as an upgrade does, with a changed annotation so that it is written."""
        crd = CHECKOUT / "deploy" / "v1" / "crd.yaml"
        await self._control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crd))
        await self._control_plane.kubectl("annotate", "--overwrite", f"crd/{CRD_NAME}", f"bench/applied={time.time()}")

    async def delete_jobs(self, purpose: str) -> None:
        """Delete all jobs of a namespace. Raises RequestError."""
        await self._delete_all(f"apis/{API_VERSION}/namespaces/{self._namespaces[purpose]}/{PLURAL}")

    async def delete_pods(self, purpose: str) -> None:
        """Delete all pods of a namespace without grace. Raises RequestError."""
        await self._delete_all(f"api/v1/namespaces/{self._namespaces[purpose]}/pods")

    async def _delete_all(self, path: str) -> None:
        control_plane = self._control_plane
        url = f"{control_plane.server}/{path}"
        token = control_plane.credentials.token_of("tester-1")
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for _ in range(DELETE_TRIES):
            response = await asyncio.to_thread(
                send, "DELETE", url, body=options, token=token, trust=control_plane.trust
            )
            if response.ok:
                return
        raise RequestError(f"DELETE {url}: {response.body.decode(errors='replace')} ({response.status})")
