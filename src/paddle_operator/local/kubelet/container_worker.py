"""Runs one container: waits for what it needs, starts it, probes it, ends it, and restarts it with kubelet's back-off.

`run` may be cancelled at any moment; a process that runs then is left to `terminate`, which knows the grace period.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.durations import go_duration
from paddle_operator.kube.errors import describe_os_error
from paddle_operator.local.container_logs import LogWriter
from paddle_operator.local.cri import Command, Image, Process, StartError
from paddle_operator.local.kubelet.container_config import ContainerConfig
from paddle_operator.local.kubelet.container_io import OutputPipe, run_command
from paddle_operator.local.kubelet.image_manager import ImageManager
from paddle_operator.local.kubelet.pod import (
    ContainerSpec,
    LifecycleHandler,
    Probe,
    RunningState,
    TerminatedState,
    WaitingState,
)
from paddle_operator.local.kubelet.pod_context import PodContext
from paddle_operator.local.kubelet.pod_status import (
    CONTAINER_CREATING,
    CRASH_LOOP,
    CREATE_ERROR,
    POD_INITIALIZING,
    AnyContainerState,
    ContainerView,
)
from paddle_operator.local.kubelet.probe_manager import ProbeTarget, run_handler, run_probe

FIRST_RESTART_BACKOFF_SECONDS = 10.0
MAX_RESTART_BACKOFF_SECONDS = 300.0
BACKOFF_RESET_SECONDS = 600.0
START_ERROR_EXIT_CODE = 128
START_TIMEOUT_SECONDS = 10.0  # for a container that is terminated while it starts; a start takes 0.05 s
HOOK_TIMEOUT_SECONDS = 600.0  # kubelet has no limit for a postStart hook; here a hang has to end


class Termination:
    """When a container is killed; the time may be shortened while it terminates."""

    def __init__(self, kill_at: float) -> None:
        self.kill_at = kill_at
        self._wake = asyncio.Event()

    def shorten_grace(self, kill_at: float) -> None:
        if kill_at < self.kill_at:
            self.kill_at = kill_at
            self._wake.set()

    async def wait_expired(self, clock: Clock) -> None:
        """Return when the grace period is over."""
        while (remaining := self.kill_at - clock.monotonic()) > 0:
            self._wake.clear()
            timer = clock.call_later(remaining, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()


class RestartBackoff:
    """Delays before restarts: 0, 10, 20, 40 … 300 s; a run of ten minutes resets them."""

    def __init__(self) -> None:
        self._restarts = 0

    def next_delay(self, ran_seconds: float) -> float:
        self._restarts = 1 if ran_seconds >= BACKOFF_RESET_SECONDS else self._restarts + 1
        if self._restarts == 1:
            return 0.0
        return exponential(self._restarts - 1, FIRST_RESTART_BACKOFF_SECONDS, MAX_RESTART_BACKOFF_SECONDS)


@dataclass(frozen=True)
class _Run:
    """What one run of the container was started from."""

    image: Image
    command: Command


class ContainerWorker:
    """`on_status_change` is called after each change of `view`."""

    def __init__(
        self, context: PodContext, spec: ContainerSpec, on_status_change: Callable[[], None], *, is_init: bool = False
    ) -> None:
        is_sidecar = is_init and spec.restart_policy == "Always"
        waiting = POD_INITIALIZING if context.pod.spec.init_containers else CONTAINER_CREATING
        self.spec = spec
        self.view = ContainerView(spec.name, spec.image, WaitingState(waiting), is_init, is_sidecar)
        self.started = asyncio.Event()  # with a startup probe: once that has succeeded
        self._context = context
        self._clock = context.deps.clock
        self._on_status_change = on_status_change
        self._image_manager = ImageManager(context, spec.image, self._set_waiting)
        self._config = ContainerConfig(context, spec, self._set_waiting)
        policy = context.pod.spec.restart_policy
        self._policy = "Always" if is_sidecar else "OnFailure" if is_init and policy == "Always" else policy
        self._backoff = RestartBackoff()
        self._started_at = 0.0
        self._run: _Run | None = None
        self._process: Process | None = None
        self._log: LogWriter | None = None
        self._output: OutputPipe | None = None
        self._exit: asyncio.Task[int] | None = None
        self._cleanup: asyncio.Task[None] | None = None
        self._probes: list[asyncio.Task[None]] = []
        self._liveness_failed: asyncio.Future[float] | None = None  # set by a probe or hook, to the grace period

    @property
    def state(self) -> AnyContainerState:
        return self.view.state

    @property
    def is_running(self) -> bool:
        return self._exit is not None

    @property
    def _post_start(self) -> LifecycleHandler | None:
        return self.spec.lifecycle.post_start if self.spec.lifecycle else None

    async def run(self) -> None:
        """Run until the container has finished by its restart policy."""
        while True:
            image = await self._image_manager.ensure_image()
            run = _Run(image, await self._config.create_command(image, self.view.restarts))
            try:
                await self._start(run)
            except OSError as error:  # a full disk, or no more file descriptors: nothing was started
                self._set_waiting(CREATE_ERROR, describe_os_error(error))
                await self._context.wait_for_change(FIRST_RESTART_BACKOFF_SECONDS)
                continue
            if self.is_running:
                await self._supervise()
            if self.view.finished:
                return
            await self._back_off()

    async def terminate(self, termination: Termination) -> None:
        """SIGTERM, grace period, SIGKILL; when it returns, no process of the container is left."""
        if self._exit is None:
            return
        if not self._exit.done():
            self._context.emit_normal("Killing", f"Stopping container {self.spec.name}")
            await self._stop_process(termination)
        await self._finish_run()

    async def kill(self) -> None:
        """SIGKILL at once, without an event."""
        if self._process and self._exit:
            self._process.kill()
            await asyncio.wait({self._exit})
            await self._finish_run()

    # Starting

    def _set_waiting(self, reason: str, message: str = "") -> None:
        """Report what the container waits for; this also replaces CrashLoopBackOff."""
        if isinstance(self.state, TerminatedState):
            self.view.last_termination = self.state
        self.view.state = WaitingState(reason, message)
        self._on_status_change()

    async def _start(self, run: _Run) -> None:
        """Raises OSError if the host has no resources for another process or file."""
        self._run = run
        self._log = self._context.deps.logs.open(self._context.pod.uid, self.spec.name, self.view.restarts)
        self._output = OutputPipe(self._log.write)
        try:
            self._adopt_process(await self._start_process(run, self._output))
        except StartError as error:
            await self._report_start_error(str(error))
        except BaseException:
            if self._process is None:
                await self._close_output()
            raise

    async def _start_process(self, run: _Run, output: OutputPipe) -> Process:
        """If it is cancelled, a process that was started meanwhile is adopted."""
        starting = asyncio.ensure_future(self._context.deps.sandbox.start(run.command, output.write_end))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting}, timeout=START_TIMEOUT_SECONDS)
            if starting.done() and not starting.exception():
                self._adopt_process(starting.result())
            else:
                starting.cancel()
            raise
        finally:
            output.close_write_end()

    def _adopt_process(self, process: Process) -> None:
        view = self.view
        view.image_id = self._run.image.name if self._run else ""
        self._process = process
        self._started_at = self._clock.monotonic()
        self._exit = asyncio.ensure_future(process.wait())
        view.state = RunningState(self._clock.now())
        view.container_id = f"process://{self._context.pod.uid}/{view.name}/{view.restarts}/{process.pid}"
        if not self.spec.startup_probe and not self._post_start:
            self._mark_started()  # here, so that it is in the same status write
        self._on_status_change()

    async def _report_start_error(self, message: str) -> None:
        self._started_at = self._clock.monotonic()
        self._context.emit_warning("Failed", f"Error: {message}")
        now = self._clock.now()
        self._set_terminated(TerminatedState(START_ERROR_EXIT_CODE, "StartError", message, now, now))
        await self._close_output()

    # Running

    async def _supervise(self) -> None:
        """Probe the process until it exits, by itself or because a probe failed."""
        assert self._exit
        self._liveness_failed = asyncio.get_running_loop().create_future()
        self._context.emit_normal("Started", f"Started container {self.spec.name}")
        async with asyncio.TaskGroup() as tasks:
            probing = tasks.create_task(self._start_probes(tasks))
            ends: set[asyncio.Future[int] | asyncio.Future[float]] = {self._exit, self._liveness_failed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self._exit.done():
                await self._stop_process(Termination(self._clock.monotonic() + self._liveness_failed.result()))
            for task in (probing, *self._probes):
                task.cancel()
        self._probes = []
        await self._finish_run()

    async def _start_probes(self, tasks: asyncio.TaskGroup) -> None:
        spec = self.spec
        if self._post_start and not await self._run_hook("PostStart", self._post_start):
            self._fail_liveness("failed its postStart hook", None)
            return
        if spec.startup_probe:
            await self._probe("Startup", spec.startup_probe, self._on_startup_result)
        elif not self.view.started:
            self._mark_started()
        if spec.liveness_probe:
            probing = self._probe("Liveness", spec.liveness_probe, self._on_liveness_result)
            self._probes.append(tasks.create_task(probing))
        if spec.readiness_probe:
            probing = self._probe("Readiness", spec.readiness_probe, self._on_readiness_result)
            self._probes.append(tasks.create_task(probing))

    async def _probe(self, probe_type: str, probe: Probe, on_decision: Callable[[bool], bool]) -> None:
        def on_failure(message: str) -> None:
            self._context.emit_warning("Unhealthy", f"{probe_type} probe failed: {message}")

        await run_probe(
            probe, lambda: run_handler(self._target, probe, probe.timeout_seconds), self._clock, on_decision, on_failure
        )

    def _mark_started(self) -> None:
        self.view.started = True
        self.view.ready = self.spec.readiness_probe is None
        self.started.set()
        self._on_status_change()

    def _on_startup_result(self, success: bool) -> bool:
        if success:
            self._mark_started()
        else:
            self._fail_liveness("failed startup probe", self.spec.startup_probe)
        return False

    def _on_liveness_result(self, success: bool) -> bool:
        if not success:
            self._fail_liveness("failed liveness probe", self.spec.liveness_probe)
        return success

    def _on_readiness_result(self, success: bool) -> bool:
        if self.view.ready is not success:
            self.view.ready = success
            self._on_status_change()
        return True

    def _fail_liveness(self, cause: str, probe: Probe | None) -> None:
        outcome = "will be killed" if self._policy == "Never" else "will be restarted"
        self._context.emit_normal("Killing", f"Container {self.spec.name} {cause}, {outcome}")
        grace = probe.termination_grace_period_seconds if probe else None
        seconds = self._context.pod.spec.termination_grace_period_seconds if grace is None else grace
        if self._liveness_failed and not self._liveness_failed.done():
            self._liveness_failed.set_result(float(seconds))

    @property
    def _target(self) -> ProbeTarget:
        return ProbeTarget(self.spec, self._context.address, self._run_in_container, self._clock)

    async def _run_hook(self, hook_type: str, handler: LifecycleHandler) -> bool:
        result = await run_handler(self._target, handler, HOOK_TIMEOUT_SECONDS)
        if not result.success:
            message = f"{hook_type} hook of {self.spec.name} failed: {result.message}"
            self._context.emit_warning(f"Failed{hook_type}Hook", message)
        return result.success

    async def _run_in_container(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Run a command with the container's files and variables. Raises StartError."""
        assert self._run
        command = replace(self._run.command, arguments=tuple(arguments))
        return await run_command(self._context.deps.sandbox, command, self._clock)

    # Terminating

    async def _stop_process(self, termination: Termination) -> None:
        assert self._process
        assert self._exit
        expired = asyncio.ensure_future(termination.wait_expired(self._clock))
        pre_stop = self.spec.lifecycle.pre_stop if self.spec.lifecycle else None
        try:
            if pre_stop:
                hook = asyncio.ensure_future(self._run_hook("PreStop", pre_stop))
                await asyncio.wait({hook, expired, self._exit}, return_when=asyncio.FIRST_COMPLETED)
                hook.cancel()
            self._process.terminate()
            await asyncio.wait({self._exit, expired}, return_when=asyncio.FIRST_COMPLETED)
            if not self._exit.done():
                self._process.kill()
                await asyncio.wait({self._exit})
        finally:
            expired.cancel()

    async def _finish_run(self) -> None:
        """Record the exit and clean up; once begun it completes, even if the caller is cancelled."""
        if self._cleanup is None:
            self._cleanup = asyncio.ensure_future(self._record_exit())
        await asyncio.shield(self._cleanup)

    async def _record_exit(self) -> None:
        assert self._exit
        assert self._process
        finished_at = self._clock.now()
        started_at = self.state.started_at if isinstance(self.state, RunningState) else finished_at
        code, process = self._exit.result(), self._process
        reason = "OOMKilled" if process.out_of_memory else "Error" if code else "Completed"
        await self._close_output()
        message = self._config.termination_message(self.view.restarts, failed=code != 0)
        self._set_terminated(TerminatedState(code, reason, message, started_at, finished_at))
        await self._config.remove_files(self.view.restarts)
        self._exit = self._process = self._cleanup = None

    async def _close_output(self) -> None:
        output, log, self._output, self._log = self._output, self._log, None, None
        try:
            if output:
                await output.drain(self._clock)
        finally:
            if log:
                self._context.deps.logs.close(log)

    def _set_terminated(self, state: TerminatedState) -> None:
        view = self.view
        view.state = state
        view.ready = view.started = False
        no_restart = self._policy == "Never" or (self._policy == "OnFailure" and state.exit_code == 0)
        view.finished = no_restart or self._context.terminating
        self._on_status_change()

    # Restarting

    async def _back_off(self) -> None:
        """Return when the container may be restarted."""
        terminated = self.state
        assert isinstance(terminated, TerminatedState)
        if seconds := self._backoff.next_delay(self._clock.monotonic() - self._started_at):
            pod = self._context.pod
            pod_name = f"{pod.key.name}_{pod.key.namespace}({pod.uid})"
            delay = go_duration(seconds)
            self._set_waiting(
                CRASH_LOOP, f"back-off {delay} restarting failed container={self.spec.name} pod={pod_name}"
            )
            self._context.emit_warning(
                "BackOff", f"Back-off restarting failed container {self.spec.name} in pod {pod_name}"
            )
            await self._clock.sleep(seconds)
        self.view.last_termination = terminated
        self.view.restarts += 1
