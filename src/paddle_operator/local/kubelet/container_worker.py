"""One container's life: made when all it needs is there, run, ended, and perhaps again after kubelet's back-off.

`live` may be cancelled at any moment; a process that runs then is left to `end`, which knows how much time it has.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.durations import go_duration
from paddle_operator.kube.errors import in_words
from paddle_operator.local.container_logs import LogWriter
from paddle_operator.local.cri import Process, StartError
from paddle_operator.local.kubelet.container_io import Output, executed
from paddle_operator.local.kubelet.container_making import ContainerMaker, Run
from paddle_operator.local.kubelet.handlers import Target, ask
from paddle_operator.local.kubelet.pod import ContainerSpec, Handler, Probe
from paddle_operator.local.kubelet.pod_context import PodContext
from paddle_operator.local.kubelet.probe_manager import verdicts
from paddle_operator.local.kubelet.states import (
    CONTAINER_CREATING,
    CRASH_LOOP,
    CREATE_ERROR,
    KILLED,
    POD_INITIALIZING,
    ContainerView,
    Running,
    State,
    Terminated,
    Waiting,
)

FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 300.0
CALM_SECONDS = 600.0
START_ERROR = 128
STARTED_WITHIN_SECONDS = 10.0  # who is told to end while it starts; a start takes a twentieth of a second
HOOK_SECONDS = 600.0  # a postStart hook has no limit with kubelet; a hang must end some time


class Stop:
    """When a container has to be gone; that may be moved forward while it is on its way out."""

    def __init__(self, kill_at: float) -> None:
        self.kill_at = kill_at
        self._sooner = asyncio.Event()

    def hasten(self, kill_at: float) -> None:
        if kill_at < self.kill_at:
            self.kill_at = kill_at
            self._sooner.set()

    async def due(self, clock: Clock) -> None:
        """Return when the time is over."""
        while (left := self.kill_at - clock.monotonic()) > 0:
            self._sooner.clear()
            timer = clock.call_later(left, self._sooner.set)
            try:
                await self._sooner.wait()
            finally:
                timer.cancel()


class Crashes:
    """How long to wait before the next start: not at all, then 10, 20, 40 … 300 s; who ran for long begins anew."""

    def __init__(self) -> None:
        self._count = 0

    def pause_after(self, ran_seconds: float) -> float:
        self._count = 1 if ran_seconds >= CALM_SECONDS else self._count + 1
        if self._count == 1:
            return 0.0
        return exponential(self._count - 1, FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)


class ContainerWorker:
    def __init__(self, home: PodContext, spec: ContainerSpec, *, initial: bool = False) -> None:
        sidecar = initial and spec.restart_policy == "Always"
        waiting = POD_INITIALIZING if home.pod.spec.init_containers else CONTAINER_CREATING
        self.spec = spec
        self.view = ContainerView(spec.name, spec.image, Waiting(waiting), initial, sidecar)
        self.begun = asyncio.Event()  # it has started, by its startup probe's word where it has one
        self._home = home
        self._clock = home.around.clock
        self._maker = ContainerMaker(home, spec, self._wait)
        policy = home.pod.spec.restart_policy
        self._policy = "Always" if sidecar else "OnFailure" if initial and policy == "Always" else policy
        self._crashes = Crashes()
        self._began_at = 0.0
        self._run: Run | None = None
        self._process: Process | None = None
        self._log: LogWriter | None = None
        self._output: Output | None = None
        self._exit: asyncio.Task[int] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._probes: list[asyncio.Task[None]] = []
        self._condemned: asyncio.Future[float] | None = None  # by its liveness probe: the grace that it has

    @property
    def state(self) -> State:
        return self.view.state

    @property
    def runs(self) -> bool:
        return self._exit is not None

    @property
    def _post_start(self) -> Handler | None:
        return self.spec.lifecycle.post_start if self.spec.lifecycle else None

    async def live(self) -> None:
        """Until it has ended for good, by its restart policy."""
        while True:
            run = await self._maker.made(self.view.restarts)
            try:
                await self._start(run)
            except OSError as error:  # a full disk, or no more files: nothing was started
                self._wait(CREATE_ERROR, in_words(error))
                await self._home.nudged(FIRST_BACKOFF_SECONDS)
                continue
            if self.runs:
                await self._attend()
            if self.view.finished:
                return
            await self._back_off()

    async def end(self, stop: Stop) -> None:
        """SIGTERM, the grace period, SIGKILL; when it returns, nothing of the container is left."""
        if self._exit is None:
            return
        if not self._exit.done():
            self._home.normal("Killing", f"Stopping container {self.spec.name}")
            await self._let_end(stop)
        await self._ended()

    async def kill(self) -> None:
        """At once, and without a word to anybody."""
        if self._process and self._exit:
            self._process.kill()
            await asyncio.wait({self._exit})
            await self._ended()

    def lose(self, now: datetime) -> None:
        """The pod ends while this one waits: it ended as it last did, or nothing is known of it, and that is said."""
        if self.view.last and isinstance(self.state, Waiting):
            self.view.state, self.view.last = self.view.last, None
        elif not isinstance(self.state, Terminated):
            message = "The container could not be located when the pod was terminated"
            self.view.state = Terminated(KILLED, "ContainerStatusUnknown", message, finished_at=now)
        self.view.finished = True

    # Starting

    def _wait(self, reason: str, message: str = "") -> None:
        """It waits for something. A crash loop that cannot even start again is told by what it waits for."""
        if isinstance(self.state, Terminated):
            self.view.last = self.state
        self.view.state = Waiting(reason, message)
        self._home.touch()

    async def _start(self, run: Run) -> None:
        """Raises OSError where the machine has no room for another process or file."""
        self._run = run
        self._log = self._home.around.logs.open(self._home.pod.uid, self.spec.name, self.view.restarts)
        self._output = Output(self._log.write)
        try:
            self._take_over(await self._started(run, self._output))
        except StartError as error:
            await self._could_not_start(str(error))
        except BaseException:
            if self._process is None:
                await self._close()
            raise

    async def _started(self, run: Run, output: Output) -> Process:
        """Cancelled in the middle it still takes over a process that has come to be."""
        starting = asyncio.ensure_future(self._home.around.sandbox.start(run.command, output.write_end))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting}, timeout=STARTED_WITHIN_SECONDS)
            if starting.done() and not starting.exception():
                self._take_over(starting.result())
            else:
                starting.cancel()
            raise
        finally:
            output.handed_over()

    def _take_over(self, process: Process) -> None:
        view = self.view
        view.image_id = self._run.image.name if self._run else ""
        self._process = process
        self._began_at = self._clock.monotonic()
        self._exit = asyncio.ensure_future(process.wait())
        view.state = Running(self._clock.now())
        view.container_id = f"process://{self._home.pod.uid}/{view.name}/{view.restarts}/{process.pid}"
        if not self.spec.startup_probe and not self._post_start:
            self._has_started()  # already now, so that it is told in the same breath
        self._home.touch()

    async def _could_not_start(self, sentence: str) -> None:
        self._began_at = self._clock.monotonic()
        self._home.warning("Failed", f"Error: {sentence}")
        self._settle(Terminated(START_ERROR, "StartError", sentence, self._clock.now(), self._clock.now()))
        await self._close()

    # Running

    async def _attend(self) -> None:
        """Probe it until it ends, by itself or because a probe says so."""
        assert self._exit
        self._condemned = asyncio.get_running_loop().create_future()
        self._home.normal("Started", f"Started container {self.spec.name}")
        async with asyncio.TaskGroup() as tasks:
            care = tasks.create_task(self._care(tasks))
            ends: set[asyncio.Future[int] | asyncio.Future[float]] = {self._exit, self._condemned}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self._exit.done():
                await self._let_end(Stop(self._clock.monotonic() + self._condemned.result()))
            for task in (care, *self._probes):
                task.cancel()
        self._probes = []
        await self._ended()

    async def _care(self, tasks: asyncio.TaskGroup) -> None:
        spec = self.spec
        if self._post_start and not await self._hook("PostStart", self._post_start):
            self._condemn("Killing", "failed its postStart hook", None)
            return
        if spec.startup_probe:
            await self._probe("Startup", spec.startup_probe, self._startup_decided)
        elif not self.view.started:
            self._has_started()
        if spec.liveness_probe:
            asking = self._probe("Liveness", spec.liveness_probe, self._liveness_decided)
            self._probes.append(tasks.create_task(asking))
        if spec.readiness_probe:
            asking = self._probe("Readiness", spec.readiness_probe, self._readiness_decided)
            self._probes.append(tasks.create_task(asking))

    async def _probe(self, title: str, probe: Probe, decided: Callable[[bool, str], bool]) -> None:
        def failed(message: str) -> None:
            self._home.warning("Unhealthy", f"{title} probe failed: {message}")

        await verdicts(probe, lambda: ask(self._target, probe, probe.timeout_seconds), self._clock, decided, failed)

    def _has_started(self) -> None:
        self.view.started = True
        self.view.ready = self.spec.readiness_probe is None
        self.begun.set()
        self._home.touch()

    def _startup_decided(self, good: bool, _message: str) -> bool:
        if good:
            self._has_started()
        else:
            self._condemn("Killing", "failed startup probe", self.spec.startup_probe)
        return False

    def _liveness_decided(self, good: bool, _message: str) -> bool:
        if not good:
            self._condemn("Killing", "failed liveness probe", self.spec.liveness_probe)
        return good

    def _readiness_decided(self, good: bool, _message: str) -> bool:
        if self.view.ready is not good:
            self.view.ready = good
            self._home.touch()
        return True

    def _condemn(self, reason: str, why: str, probe: Probe | None) -> None:
        then = "will be killed" if self._policy == "Never" else "will be restarted"
        self._home.normal(reason, f"Container {self.spec.name} {why}, {then}")
        grace = probe.termination_grace_period_seconds if probe else None
        seconds = self._home.pod.spec.termination_grace_period_seconds if grace is None else grace
        if self._condemned and not self._condemned.done():
            self._condemned.set_result(float(seconds))

    @property
    def _target(self) -> Target:
        return Target(self.spec, self._home.address, self._beside, self._clock)

    async def _hook(self, title: str, handler: Handler, seconds: float = HOOK_SECONDS) -> bool:
        answer = await ask(self._target, handler, seconds)
        if not answer.good:
            self._home.warning(f"Failed{title}Hook", f"{title} hook of {self.spec.name} failed: {answer.message}")
        return answer.good

    async def _beside(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Run something with the container's files and variables. Raises StartError."""
        assert self._run
        command = replace(self._run.command, arguments=tuple(arguments))
        return await executed(self._home.around.sandbox, command, self._clock)

    # Ending

    async def _let_end(self, stop: Stop) -> None:
        assert self._process
        assert self._exit
        due = asyncio.ensure_future(stop.due(self._clock))
        hook = self.spec.lifecycle.pre_stop if self.spec.lifecycle else None
        try:
            if hook:
                asked = asyncio.ensure_future(self._hook("PreStop", hook))
                await asyncio.wait({asked, due, self._exit}, return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
            self._process.terminate()
            await asyncio.wait({self._exit, due}, return_when=asyncio.FIRST_COMPLETED)
            if not self._exit.done():
                self._process.kill()
                await asyncio.wait({self._exit})
        finally:
            due.cancel()

    async def _ended(self) -> None:
        """Note the end; once begun it is done to its end, whoever is cancelled meanwhile."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close_down())
        await asyncio.shield(self._closing)

    async def _close_down(self) -> None:
        assert self._exit
        assert self._process
        started_at = self.state.started_at if isinstance(self.state, Running) else self._clock.now()
        finished_at = self._clock.now()
        code, process = self._exit.result(), self._process
        reason = "OOMKilled" if process.out_of_memory else "Error" if code else "Completed"
        await self._close()
        message = self._maker.last_words(self.view.restarts, failed=code != 0)
        self._settle(Terminated(code, reason, message, started_at, finished_at))
        await self._maker.clean_up(self.view.restarts)
        self._exit = self._process = self._closing = None

    async def _close(self) -> None:
        output, log, self._output, self._log = self._output, self._log, None, None
        try:
            if output:
                await output.drain(self._clock)
        finally:
            if log:
                self._home.around.logs.close(log)

    def _settle(self, end: Terminated) -> None:
        view = self.view
        view.state = end
        view.ready = view.started = False
        last = self._policy == "Never" or (self._policy == "OnFailure" and end.code == 0)
        view.finished = last or self._home.ending
        self._home.touch()

    # Again

    async def _back_off(self) -> None:
        """Return when it may start again."""
        end = self.state
        assert isinstance(end, Terminated)
        if seconds := self._crashes.pause_after(self._clock.monotonic() - self._began_at):
            pod = self._home.pod
            who = f"{pod.key.name}_{pod.key.namespace}({pod.uid})"
            self._wait(
                CRASH_LOOP, f"back-off {go_duration(seconds)} restarting failed container={self.spec.name} pod={who}"
            )
            self._home.warning("BackOff", f"Back-off restarting failed container {self.spec.name} in pod {who}")
            await self._clock.sleep(seconds)
        self.view.last = end
        self.view.restarts += 1
