"""A real Volcano beside a running control plane: its scheduler, its controller manager and its kinds.

What a gang may do is decided by Volcano and not by us. It is ready 4 to 5 s after the start. No process of it outlives
its owner: see supervisor.py. Its logs are in the folder `volcano` of the control plane's own.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import yaml

from testbed.control_plane import ATTEMPTS, ControlPlane
from testbed.credentials import ADMIN
from testbed.ports import LOOPBACK, find_free_ports
from testbed.request import HTTPResponse, RequestError, send
from testbed.servers import PortInUseError, ServerProcess, ServerStartError, SupervisedServers, SupervisorClient
from testbed.volcano_assets import VolcanoPrograms

USER = "tester-23"  # Volcano's name in the audit log; it may do everything, as its own installation lets it nearly do
PERIOD = "200ms"  # between two looks at everything; stock is a second, of which a gang's life has several
WITHIN_SECONDS = 60.0
POLL_SECONDS = 0.02
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/default"

# All but those of kinds whose definitions the chart lacks. Volcano knows no way to name only what is left out: with
# -jobflow-controller alone none is started (isControllerEnabled in cmd/controller-manager/app/server.go).
CONTROLLERS = "+gc-controller,+job-controller,+pg-controller,+queue-controller"

PLUGINS = """
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false  # as in Volcano's own chart: otherwise a gang without a spare pod is nobody's victim
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

# A group waits as Pending until its minResources seem to be free, and only then is it Inqueue and its pods are looked
# at. So a gang that could preempt another never gets that far while the cluster is full.
QUEUEING_CONFIGURATION = f'actions: "enqueue, allocate, preempt, reclaim, backfill"{PLUGINS}'

# Every group is Inqueue at once, and one of a higher priority takes what it needs.
PREEMPTING_CONFIGURATION = f'actions: "allocate, preempt, reclaim, backfill"{PLUGINS}'


class Volcano(SupervisedServers):
    """Running programs; `scheduler` and `controller_manager` can each be stopped, killed and started again.

    Volcano's kinds and their objects stay when they end.
    """

    def __init__(self, control_plane: ControlPlane, programs: VolcanoPrograms, supervision: SupervisorClient) -> None:
        self.control_plane = control_plane
        super().__init__(supervision)
        self._configuration = folder_of(control_plane) / "scheduler.yaml"
        kubeconfig = f"--kubeconfig={control_plane.write_kubeconfig(USER)}"
        scheduler_port, controller_port = find_free_ports(2)
        self.scheduler = self._server(
            scheduler_port,
            programs.scheduler,
            kubeconfig,
            f"--scheduler-conf={self._configuration}",
            f"--schedule-period={PERIOD}",
            "--cache-dumper=false",
        )
        self.controller_manager = self._server(
            controller_port,
            programs.controller_manager,
            kubeconfig,
            f"--controllers={CONTROLLERS}",
            "--kube-api-qps=1000",  # the stock 50 requests a second would be measured
            "--kube-api-burst=2000",
        )

    @classmethod
    def start(
        cls, control_plane: ControlPlane, programs: VolcanoPrograms, configuration: str = QUEUEING_CONFIGURATION
    ) -> Self:
        """A Volcano whose queue `default` is open. Raises ServerStartError."""
        define(control_plane, programs)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return cls._start_once(control_plane, programs, configuration)
            except PortInUseError:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    @classmethod
    def _start_once(cls, control_plane: ControlPlane, programs: VolcanoPrograms, configuration: str) -> Self:
        folder = folder_of(control_plane)
        folder.mkdir()
        supervision = SupervisorClient(folder)
        try:
            volcano = cls(control_plane, programs, supervision)
            volcano._configuration.write_text(configuration)
            volcano.scheduler.launch()
            volcano.controller_manager.launch()
            volcano.scheduler.wait_until_ready()
            volcano.controller_manager.wait_until_ready()
            until(volcano._queue_is_open, "the queue default is not open")
        except BaseException:
            supervision.close()
            raise
        return volcano

    @asynccontextmanager
    async def configured(self, configuration: str) -> AsyncIterator[None]:
        """The scheduler is another one for the length of a block."""
        before = self._configuration.read_text()
        await self._reconfigure(configuration)
        try:
            yield
        finally:
            await self._reconfigure(before)

    async def _reconfigure(self, configuration: str) -> None:
        await self.scheduler.kill()  # it would read the file anew by itself, but does not say when it has
        self._configuration.write_text(configuration)
        await self.scheduler.start()

    def _server(self, port: int, program: Path, *flags: str) -> ServerProcess:
        address = f"{LOOPBACK}:{port}"
        common = ("--enable-healthz", f"--healthz-address={address}", "--leader-elect=false")
        command: list[str | Path] = [program, *flags, *common]
        log = folder_of(self.control_plane) / f"{program.name}.log"
        return ServerProcess(self._supervision, command, log, lambda: send("GET", f"http://{address}/healthz").ok)

    def _queue_is_open(self) -> bool:
        reply = ask(self.control_plane, "GET", QUEUE)
        return bool(reply.ok and reply.json().get("status", {}).get("state") == "Open")


def define(control_plane: ControlPlane, programs: VolcanoPrograms) -> None:
    """The kinds of Volcano are served; what is there already is left as it is. Raises RequestError."""
    definitions: list[Any] = [yaml.safe_load(path.read_text()) for path in programs.definitions]
    for definition in definitions:
        reply = ask(control_plane, "POST", DEFINITIONS, definition)
        if not reply.ok and reply.status != 409:
            raise RequestError(f"{definition['metadata']['name']}: {reply.body.decode(errors='replace')}")
    for path in map(path_of, definitions):
        until(partial(is_served, control_plane, path), f"{path} is not served")


def path_of(definition: Any) -> str:
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"


def is_served(control_plane: ControlPlane, path: str) -> bool:
    return ask(control_plane, "GET", path).ok


def folder_of(control_plane: ControlPlane) -> Path:
    return control_plane.directory / "volcano"


def ask(control_plane: ControlPlane, method: str, path: str, body: object = None) -> HTTPResponse:
    token = control_plane.credentials.token_of(ADMIN)
    return send(method, f"{control_plane.server}{path}", body=body, token=token, trust=control_plane.trust)


def until(claim: Callable[[], bool], otherwise: str) -> None:
    """Return when the claim holds. Raises ServerStartError."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while not claim():
        if time.monotonic() > deadline:
            raise ServerStartError(f"{otherwise} after {WITHIN_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
