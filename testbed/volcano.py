"""A real Volcano on a running control plane: its scheduler, controller manager and CRDs.

Ready 4 to 5 s after the start. No process outlives its owner: see supervisor.py. Its logs are in the folder `volcano`
of the control plane's directory.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import yaml

from testbed.control_plane import MAX_START_ATTEMPTS, ControlPlane
from testbed.credentials import ADMIN
from testbed.ports import LOOPBACK, find_free_ports
from testbed.request import HTTPResponse, RequestError, send
from testbed.servers import PortInUseError, ServerProcess, ServerStartError, SupervisedServers, SupervisorClient
from testbed.volcano_assets import VolcanoPrograms

VOLCANO_USER = "tester-23"  # with all rights; Volcano's own installation grants nearly all
SCHEDULE_PERIOD = "200ms"  # between scheduling cycles; the default of 1 s would slow every test by seconds
WAIT_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.02
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFAULT_QUEUE_PATH = "/apis/scheduling.volcano.sh/v1beta1/queues/default"

# All but those of kinds whose CRDs the chart lacks. A list of exclusions does not work: with -jobflow-controller alone
# no controller is started (isControllerEnabled in cmd/controller-manager/app/server.go).
CONTROLLERS = "+gc-controller,+job-controller,+pg-controller,+queue-controller"

PLUGIN_TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false  # as in Volcano's own chart: otherwise a gang without a spare pod is never preempted
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

# A group is Pending until its minResources seem to be free; only then is it Inqueue and its pods are considered. So a
# gang cannot preempt another while the cluster is full.
QUEUEING_CONFIGURATION = f'actions: "enqueue, allocate, preempt, reclaim, backfill"{PLUGIN_TIERS}'

# Every group is Inqueue at once, and one of a higher priority can preempt.
PREEMPTING_CONFIGURATION = f'actions: "allocate, preempt, reclaim, backfill"{PLUGIN_TIERS}'


class Volcano(SupervisedServers):
    """Running programs; `scheduler` and `controller_manager` can each be stopped, killed and restarted.

    Volcano's CRDs and objects remain after `close`.
    """

    def __init__(self, control_plane: ControlPlane, programs: VolcanoPrograms, supervision: SupervisorClient) -> None:
        self.control_plane = control_plane
        super().__init__(supervision)
        self._configuration = volcano_folder(control_plane) / "scheduler.yaml"
        kubeconfig = f"--kubeconfig={control_plane.write_kubeconfig(VOLCANO_USER)}"
        scheduler_port, controller_port = find_free_ports(2)
        self.scheduler = self._server(
            scheduler_port,
            programs.scheduler,
            kubeconfig,
            f"--scheduler-conf={self._configuration}",
            f"--schedule-period={SCHEDULE_PERIOD}",
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
        """Start Volcano and wait until its queue `default` is open. Raises ServerStartError."""
        apply_crds(control_plane, programs)
        for attempt in range(1, MAX_START_ATTEMPTS + 1):
            try:
                return cls._start_once(control_plane, programs, configuration)
            except PortInUseError:
                if attempt == MAX_START_ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    @classmethod
    def _start_once(cls, control_plane: ControlPlane, programs: VolcanoPrograms, configuration: str) -> Self:
        folder = volcano_folder(control_plane)
        folder.mkdir()
        supervision = SupervisorClient(folder)
        try:
            volcano = cls(control_plane, programs, supervision)
            volcano._configuration.write_text(configuration)
            volcano.scheduler.launch()
            volcano.controller_manager.launch()
            volcano.scheduler.wait_until_ready()
            volcano.controller_manager.wait_until_ready()
            wait_until(volcano._queue_is_open, "the queue default is not open")
        except BaseException:
            supervision.close()
            raise
        return volcano

    @asynccontextmanager
    async def use_configuration(self, configuration: str) -> AsyncIterator[None]:
        """Use another scheduler configuration for the length of a block."""
        before = self._configuration.read_text()
        await self._reconfigure(configuration)
        try:
            yield
        finally:
            await self._reconfigure(before)

    async def _reconfigure(self, configuration: str) -> None:
        await self.scheduler.kill()  # it would reload the file, but does not report when
        self._configuration.write_text(configuration)
        await self.scheduler.start()

    def _server(self, port: int, program: Path, *flags: str) -> ServerProcess:
        address = f"{LOOPBACK}:{port}"
        common = ("--enable-healthz", f"--healthz-address={address}", "--leader-elect=false")
        command: list[str | Path] = [program, *flags, *common]
        log = volcano_folder(self.control_plane) / f"{program.name}.log"
        return ServerProcess(self._supervision, command, log, lambda: send("GET", f"http://{address}/healthz").ok)

    def _queue_is_open(self) -> bool:
        response = request(self.control_plane, "GET", DEFAULT_QUEUE_PATH)
        return bool(response.ok and response.json().get("status", {}).get("state") == "Open")


def apply_crds(control_plane: ControlPlane, programs: VolcanoPrograms) -> None:
    """Create the missing CRDs of Volcano and wait until they are served. Raises RequestError."""
    definitions: list[Any] = [yaml.safe_load(path.read_text()) for path in programs.definitions]
    for definition in definitions:
        response = request(control_plane, "POST", CRDS_PATH, definition)
        if not response.ok and response.status != 409:
            raise RequestError(f"{definition['metadata']['name']}: {response.body.decode(errors='replace')}")
    for path in map(collection_path, definitions):
        wait_until(partial(is_served, control_plane, path), f"{path} is not served")


def collection_path(definition: Any) -> str:
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"


def is_served(control_plane: ControlPlane, path: str) -> bool:
    return request(control_plane, "GET", path).ok


def volcano_folder(control_plane: ControlPlane) -> Path:
    return control_plane.directory / "volcano"


def request(control_plane: ControlPlane, method: str, path: str, body: object = None) -> HTTPResponse:
    token = control_plane.credentials.token_of(ADMIN)
    return send(method, f"{control_plane.server}{path}", body=body, token=token, trust=control_plane.trust)


def wait_until(condition: Callable[[], bool], failure: str) -> None:
    """Return when the condition holds. Raises ServerStartError."""
    deadline = time.monotonic() + WAIT_TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ServerStartError(f"{failure} after {WAIT_TIMEOUT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
