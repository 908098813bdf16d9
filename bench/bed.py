"""A control plane to measure on, and the programs that run beside it: nobody else is at work there, and all of it ends.

On a quiet bed the controller manager and the scheduler are stopped once the namespaces are there: on two cores their
work on every pod would be measured along, and the garbage collector would take pods whose owner and node were never
made. On a live one they are at work, since a load is measured with all that a pod costs a cluster.
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
from paddle_operator.manager import LEASE
from testbed.audit import AuditLog
from testbed.control_plane import ControlPlane
from testbed.ports import LOOPBACK
from testbed.progress import Progress
from testbed.request import RequestError, send

CHECKOUT = Path(__file__).parent.parent
CRD_NAME = f"{PLURAL}.{GROUP}"
END_SECONDS = 5.0
LEADS_SECONDS = 100.0
DELETE_TRIES = 5  # many pods may take longer than a request may; each try goes on with those that are left

Told = dict[str, float]


class ProgramError(RuntimeError):
    """A program ended without its figures; what it had to say is on standard error."""


class Program:
    """A process that tells lines of figures."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._name = name
        self._process = process

    async def told(self) -> Told:
        """The next line. Raises ProgramError where there is none."""
        assert self._process.stdout
        line = await self._process.stdout.readline()
        if not line:
            raise ProgramError(f"the program {self._name} ended with code {await self._process.wait()} and no figure")
        return msgspec.json.decode(line, type=Told)

    def go(self) -> None:
        """Tell it to go on."""
        assert self._process.stdin
        self._process.stdin.write(b".")

    def stop(self) -> None:
        """Ask it to end, unless it has."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    async def ended(self) -> None:
        await self._process.wait()


class Bed:
    def __init__(self, control_plane: ControlPlane, progress: Progress) -> None:
        self.progress = progress
        self.filled: Counter[str] = Counter()  # pods by the namespace's purpose
        self._control_plane = control_plane
        self._namespaces: dict[str, str] = {}

    @classmethod
    async def quiet(cls, control_plane: ControlPlane, namespaces: Sequence[str], progress: Progress) -> "Bed":
        """With a namespace for each purpose, and with nobody but the API server and etcd left."""
        bed = cls(control_plane, progress)
        await bed._furnish(namespaces)
        await control_plane.scheduler.stop()
        await control_plane.controller_manager.stop()
        return bed

    @classmethod
    async def live(cls, control_plane: ControlPlane, namespaces: Sequence[str], progress: Progress) -> "Bed":
        """With a namespace for each purpose, and with everybody at work; the garbage collector knows our kind."""
        bed = cls(control_plane, progress)
        await bed._furnish(namespaces)
        await control_plane.controller_manager.kill()  # it looks for new kinds only every 30 s
        await control_plane.controller_manager.start()
        return bed

    async def _furnish(self, namespaces: Sequence[str]) -> None:
        crd = CHECKOUT / "deploy" / "v1" / "crd.yaml"
        await self._control_plane.kubectl("apply", "--server-side", "-f", str(crd))
        for purpose in namespaces:
            self._namespaces[purpose] = await self._control_plane.make_namespace(purpose)

    @property
    def audit(self) -> AuditLog:
        return self._control_plane.audit

    def place(self, purpose: str, user: str = "tester-0") -> dict[str, Any]:
        """The options that every program has. Not the administrator, whom the API server never makes wait."""
        kubeconfig = self._control_plane.kubeconfig_for(user)
        return {"kubeconfig": str(kubeconfig), "namespace": self._namespaces[purpose]}

    def manager(
        self, purpose: str, port: int, user: str = "tester-0", metrics_port: int = 0
    ) -> AbstractAsyncContextManager[Program]:
        """The operator as its users run it, with its probes on that port of the loopback address."""
        place = self.place(purpose, user)
        return self.started(
            "paddle_operator.manager",
            f"--kubeconfig={place['kubeconfig']}",
            f"--namespace={place['namespace']}",
            "--leader-elect",
            f"--leader-election-namespace={place['namespace']}",
            f"--health-probe-bind-address={LOOPBACK}:{port}",
            f"--metrics-bind-address={LOOPBACK}:{metrics_port}",
            "--log-level=warning",
        )

    async def leads(self, purpose: str) -> None:
        """Return when the operator of a namespace has the lease, and so is at work."""
        lease = f"lease/{LEASE}"
        wish = ("--namespace", self._namespaces[purpose], "wait", lease, "--for=jsonpath={.spec.holderIdentity}")
        await self._control_plane.kubectl(*wish, f"--timeout={LEADS_SECONDS:.0f}s")

    @property
    def etcd(self) -> str:
        flag = "--listen-client-urls="
        return next(each.removeprefix(flag) for each in self._control_plane.etcd.command if each.startswith(flag))

    async def run(self, module: str, options: Options) -> Told:
        """The last line that a program tells; it has ended then."""
        last: Told = {}
        async with self.measuring(module, options) as program:
            while True:
                try:
                    last = await program.told()
                except ProgramError:
                    if not last:
                        raise
                    return last
                if "pods" in last:
                    self.progress.show(f"  {last['pods']:,.0f} pods")

    def measuring(self, name: str, options: Options) -> AbstractAsyncContextManager[Program]:
        """A program of bench/programs."""
        return self.started(f"bench.programs.{name}", msgspec.json.encode(options).decode())

    @asynccontextmanager
    async def started(self, module: str, *arguments: str) -> AsyncIterator[Program]:
        """A process of its own, which is to end by itself; one that does not is ended."""
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
                await asyncio.wait_for(process.wait(), END_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def disturb(self) -> None:
        """Kill the API server and start it again: every watch and every connection is cut."""
        await self._control_plane.api_server.kill()
        await self._control_plane.recover()

    async def define_again(self) -> None:
        """Apply the CRD once more, as at an upgrade, with something changed so that it counts."""
        crd = CHECKOUT / "deploy" / "v1" / "crd.yaml"
        await self._control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crd))
        await self._control_plane.kubectl("annotate", "--overwrite", f"crd/{CRD_NAME}", f"bench/applied={time.time()}")

    async def delete_jobs(self, purpose: str) -> None:
        """All jobs of a namespace. Raises RequestError."""
        await self._delete_all(f"apis/{API_VERSION}/namespaces/{self._namespaces[purpose]}/{PLURAL}")

    async def delete_pods(self, purpose: str) -> None:
        """All pods of a namespace, without grace. Raises RequestError."""
        await self._delete_all(f"api/v1/namespaces/{self._namespaces[purpose]}/pods")

    async def _delete_all(self, path: str) -> None:
        control_plane = self._control_plane
        url = f"{control_plane.server}/{path}"
        token = control_plane.credentials.token_of("tester-1")
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for _ in range(DELETE_TRIES):
            reply = await asyncio.to_thread(send, "DELETE", url, body=options, token=token, trust=control_plane.trust)
            if reply.ok:
                return
        raise RequestError(f"DELETE {url}: {reply.body.decode(errors='replace')} ({reply.status})")
