"""What a container needs before it can start: an image, its variables, its volumes; whatever is missing is waited for.

Unlike a kubelet, which looks again after a back-off, this node is told of a ConfigMap the moment it is there.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paddle_operator.kube.errors import in_words
from paddle_operator.kube.quantities import amount
from paddle_operator.local.cri import Command, Image, ImageError, Mount, Sandbox
from paddle_operator.local.kubelet.container_env import ConfigError, command_line, environment, variables
from paddle_operator.local.kubelet.pod import ContainerSpec
from paddle_operator.local.kubelet.pod_context import PodContext
from paddle_operator.local.kubelet.projected_volume import MountError
from paddle_operator.local.kubelet.states import CONFIG_ERROR, CONTAINER_CREATING, CREATE_ERROR
from paddle_operator.local.kubelet.volume_manager import remove_folder
from paddle_operator.local.sandbox.sandbox import PlainSandbox

FIRST_PULL_SECONDS = 10.0
FIRST_CREATE_SECONDS = 1.0
LONGEST_SECONDS = 300.0
PULL_SECONDS = 1.0  # from ErrImagePull to ImagePullBackOff
PROGRESS_SECONDS = 1.0  # a status is written at most this often to tell how a download goes on
NOTICED_SECONDS = 0.2  # an image that was there before is found faster than this
LONGEST_MESSAGE = 4096


@dataclass(frozen=True)
class Run:
    """One run of a container, ready to start."""

    image: Image
    command: Command


class ContainerMaker:
    """Makes the runs of one container; `wait` is told what it waits for."""

    def __init__(self, home: PodContext, spec: ContainerSpec, wait: Callable[..., None]) -> None:
        self._home = home
        self._spec = spec
        self._wait = wait
        self._clock = home.around.clock
        self._asked_at = 0.0
        self._told_at = float("-inf")
        self._pulling = False

    async def made(self, restart: int) -> Run:
        """Return when nothing is missing any more."""
        image = await self._image()
        pause = FIRST_CREATE_SECONDS
        while True:
            try:
                command = await self._command(image, restart)
            except ConfigError as error:
                self._complain(CONFIG_ERROR, str(error))
                await self._home.nudged()
            except MountError as error:
                self._complain(CREATE_ERROR, str(error))
                await self._home.nudged(pause)
                pause = min(pause * 2, LONGEST_SECONDS)
            except OSError as error:
                about = f": {error.filename}" if error.filename else ""
                self._complain(CREATE_ERROR, f"{in_words(error)}{about}")
                await self._home.nudged(pause)
                pause = min(pause * 2, LONGEST_SECONDS)
            else:
                self._home.normal("Created", f"Created container: {self._spec.name}")
                return Run(image, command)

    def last_words(self, restart: int, *, failed: bool) -> str:
        """What the container wrote to its termination log, or what it printed last where its policy says so."""
        spec, uid = self._spec, self._home.pod.uid
        try:
            message = (self._scratch(restart) / "termination-log").read_bytes()[:LONGEST_MESSAGE]
        except OSError:
            message = b""
        if not message and failed and spec.termination_message_policy == "FallbackToLogsOnError":
            return self._home.around.logs.last_lines(uid, spec.name, restart)
        return message.decode(errors="replace")

    async def clean_up(self, restart: int) -> None:
        await asyncio.to_thread(remove_folder, self._scratch(restart))

    def _complain(self, reason: str, message: str) -> None:
        self._wait(reason, message)
        self._home.warning("Failed", f"Error: {message}")

    # The image

    async def _image(self) -> Image:
        pause = FIRST_PULL_SECONDS
        name = self._spec.image
        while True:
            self._asked_at = self._clock.monotonic()
            self._pulling = False
            try:
                image = await self._home.around.images.find(name, self._progress)
            except ImageError as error:
                await self._not_pulled(error, pause)
                pause = min(pause * 2, LONGEST_SECONDS)
                continue
            seconds = self._clock.monotonic() - self._asked_at
            if seconds > NOTICED_SECONDS:
                self._home.normal("Pulled", f'Successfully pulled image "{name}" in {seconds:.3g}s')
            else:
                self._home.normal("Pulled", f'Container image "{name}" already present on machine')
            return image

    async def _not_pulled(self, error: ImageError, pause: float) -> None:
        name, reason = self._spec.image, error.reason
        self._wait(reason, str(error))
        self._home.warning("Failed", f'Failed to pull image "{name}": {error}')
        self._home.warning("Failed", f"Error: {reason}")
        if reason != "ErrImagePull":  # InvalidImageName and its like do not become another word
            await self._home.nudged(pause)
            return
        await self._clock.sleep(PULL_SECONDS)
        self._wait("ImagePullBackOff", f'Back-off pulling image "{name}": {reason}: {error}')
        self._home.normal("BackOff", f'Back-off pulling image "{name}"')
        await self._home.nudged(pause)

    def _progress(self, line: str) -> None:
        now = self._clock.monotonic()
        if not self._pulling and now > self._asked_at + NOTICED_SECONDS:
            self._pulling = True
            self._home.normal("Pulling", f'Pulling image "{self._spec.image}"')
        if now >= self._told_at + PROGRESS_SECONDS:
            self._told_at = now
            self._wait(CONTAINER_CREATING, line)

    # The command

    async def _command(self, image: Image, restart: int) -> Command:
        """Raises ConfigError, MountError or OSError."""
        home, spec = self._home, self._spec
        asked = variables(spec, home.facts, home.around.contents)
        arguments = command_line(spec, image, asked)
        scratch = self._scratch(restart)
        mounts = home.mounts(spec, asked)
        await asyncio.to_thread(remove_folder, scratch)
        copied = await asyncio.to_thread(_copied, image.mounts, scratch)
        (scratch / "root").mkdir(parents=True, exist_ok=True)
        (scratch / "termination-log").touch()
        words = Mount(scratch / "termination-log", spec.termination_message_path)
        limit = spec.resources.limits.get("memory")
        return Command(
            arguments=arguments,
            environment=environment(asked, image, host_name=home.pod.host_name, home=_home_folder(home.around.sandbox))
            | {name: value for name, value in home.gpus_of(spec).items() if name not in asked},
            working_directory=spec.working_dir or image.working_directory,
            host_name=home.pod.host_name,
            mounts=(*copied, words, *mounts),
            user=_user(spec, home),
            memory_bytes=int(amount(limit)) if limit is not None else None,
            scratch=scratch / "root",
        )

    def _scratch(self, restart: int) -> Path:
        return self._home.folder / self._spec.name / f"scratch-{restart}"


def _copied(mounts: tuple[Mount, ...], scratch: Path) -> tuple[Mount, ...]:
    """An image's files, each container its own, since it may write there. Raises OSError."""
    copies = []
    for number, mount in enumerate(mounts):
        if mount.read_only:
            copies.append(mount)
            continue
        copy = scratch / "image" / str(number)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if mount.source.is_dir():
            shutil.copytree(mount.source, copy, symlinks=True)
        else:
            shutil.copy2(mount.source, copy)
        copies.append(Mount(copy, mount.target))
    return tuple(copies)


def _user(spec: ContainerSpec, home: PodContext) -> int:
    for context in (spec.security_context, home.pod.spec.security_context):
        if context and context.run_as_user is not None:
            return context.run_as_user
    return 0


def _home_folder(sandbox: Sandbox) -> str:
    """As images have it; a plain process has the machine's /root, which is not everybody's."""
    plain = isinstance(sandbox, PlainSandbox) and os.geteuid() != 0
    return str(Path.home()) if plain else "/root"
