"""Builds the command of a container: variables, volumes, files of its image. It waits for whatever is missing.

A kubelet checks again after a back-off; this one is notified as soon as a ConfigMap is created.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.errors import describe_os_error
from paddle_operator.kube.quantities import amount
from paddle_operator.local.cri import Command, Image, Mount, Sandbox
from paddle_operator.local.kubelet.container_env import (
    ConfigError,
    process_environment,
    resolve_command,
    resolve_env,
)
from paddle_operator.local.kubelet.pod import ContainerSpec
from paddle_operator.local.kubelet.pod_context import PodContext
from paddle_operator.local.kubelet.pod_status import CONFIG_ERROR, CREATE_ERROR
from paddle_operator.local.kubelet.projected_volume import MountError
from paddle_operator.local.kubelet.volume_manager import remove_directory
from paddle_operator.local.sandbox.sandbox import PlainSandbox

FIRST_CREATE_BACKOFF_SECONDS = 1.0
MAX_CREATE_BACKOFF_SECONDS = 300.0
MAX_TERMINATION_MESSAGE_BYTES = 4096


class ContainerConfig:
    """Builds commands for one container; `set_waiting` reports a reason and a message as its state."""

    def __init__(self, context: PodContext, spec: ContainerSpec, set_waiting: Callable[[str, str], None]) -> None:
        self._context = context
        self._spec = spec
        self._set_waiting = set_waiting

    async def create_command(self, image: Image, restart: int) -> Command:
        """Return the command once nothing is missing any more."""
        retry = 1
        while True:
            try:
                command = await self._build_command(image, restart)
            except ConfigError as error:
                self._report_error(CONFIG_ERROR, str(error))
                await self._context.wait_for_change()
                continue
            except (MountError, OSError) as error:
                self._report_error(CREATE_ERROR, _error_message(error))
            else:
                self._context.emit_normal("Created", f"Created container: {self._spec.name}")
                return command
            await self._context.wait_for_change(
                exponential(retry, FIRST_CREATE_BACKOFF_SECONDS, MAX_CREATE_BACKOFF_SECONDS)
            )
            retry += 1

    def termination_message(self, restart: int, *, failed: bool) -> str:
        """The content of the termination log, or the end of the output if terminationMessagePolicy requests it."""
        spec, uid = self._spec, self._context.pod.uid
        try:
            message = (self._scratch(restart) / "termination-log").read_bytes()[:MAX_TERMINATION_MESSAGE_BYTES]
        except OSError:
            message = b""
        if not message and failed and spec.termination_message_policy == "FallbackToLogsOnError":
            return self._context.deps.logs.last_lines(uid, spec.name, restart)
        return message.decode(errors="replace")

    async def remove_files(self, restart: int) -> None:
        await asyncio.to_thread(remove_directory, self._scratch(restart))

    def _report_error(self, reason: str, message: str) -> None:
        self._set_waiting(reason, message)
        self._context.emit_warning("Failed", f"Error: {message}")

    async def _build_command(self, image: Image, restart: int) -> Command:
        """Raises ConfigError, MountError or OSError."""
        context, spec = self._context, self._spec
        variables = resolve_env(spec, context.downward, context.deps.configs)
        arguments = resolve_command(spec, image, variables)
        scratch = self._scratch(restart)
        mounts = context.mounts(spec, variables)
        await asyncio.to_thread(remove_directory, scratch)
        image_mounts = await asyncio.to_thread(_copy_image_files, image.mounts, scratch)
        (scratch / "root").mkdir(parents=True, exist_ok=True)
        (scratch / "termination-log").touch()
        termination_log = Mount(scratch / "termination-log", spec.termination_message_path)
        limit = spec.resources.limits.get("memory")
        host_name = context.pod.host_name
        environment = process_environment(
            variables, image, host_name=host_name, home=_home_directory(context.deps.sandbox)
        )
        gpu_env = {name: value for name, value in context.gpu_env(spec).items() if name not in variables}
        return Command(
            arguments=arguments,
            environment=environment | gpu_env,
            working_directory=spec.working_dir or image.working_directory,
            host_name=host_name,
            mounts=(*image_mounts, termination_log, *mounts),
            user=_user(spec, context),
            memory_bytes=int(amount(limit)) if limit is not None else None,
            scratch=scratch / "root",
        )

    def _scratch(self, restart: int) -> Path:
        return self._context.directory / self._spec.name / f"scratch-{restart}"


def _error_message(error: MountError | OSError) -> str:
    if isinstance(error, MountError):
        return str(error)
    return f"{describe_os_error(error)}: {error.filename}" if error.filename else describe_os_error(error)


def _copy_image_files(mounts: tuple[Mount, ...], scratch: Path) -> tuple[Mount, ...]:
    """Copy an image's writable files, so that each container has its own. Raises OSError."""
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


def _user(spec: ContainerSpec, context: PodContext) -> int:
    for security_context in (spec.security_context, context.pod.spec.security_context):
        if security_context and security_context.run_as_user is not None:
            return security_context.run_as_user
    return 0


def _home_directory(sandbox: Sandbox) -> str:
    """HOME as images set it; a process without namespaces may not be allowed to use the host's /root."""
    is_plain = isinstance(sandbox, PlainSandbox) and os.geteuid() != 0
    return str(Path.home()) if is_plain else "/root"
