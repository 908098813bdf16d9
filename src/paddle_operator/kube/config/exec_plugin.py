"""Credentials from a program: the exec plugins of a kubeconfig, client.authentication.k8s.io/v1 and v1beta1.

A plugin may prompt the user, open a browser or call a cloud, so it runs only when needed: once for all waiting
requests, and again when its credential expires or is refused.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import IO, Annotated

import msgspec

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.config.credentials import Credentials, KeyPair, Secret, decode_secret
from paddle_operator.kube.config.kubeconfig import Exec
from paddle_operator.kube.errors import Misconfigured

EXEC_GROUP = "client.authentication.k8s.io"
EXEC_API_VERSIONS = (f"{EXEC_GROUP}/v1", f"{EXEC_GROUP}/v1beta1")
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")

_TIMEOUT_SECONDS = 60.0
_INTERACTIVE_TIMEOUT_SECONDS = 600.0  # a login in a browser, with a second factor, takes minutes
_RENEW_BEFORE_EXPIRY = timedelta(seconds=10)  # a request must not expire on its way
_MIN_RERUN_SECONDS = 1.0  # a plugin that fails, or prints expired credentials, is not run in a loop
_MAX_OUTPUT_BYTES = 1 << 20
_MAX_STDERR_LINES, _MAX_STDERR_LINE_CHARACTERS = 3, 200  # in an error message

# What looks like a credential on a plugin's stderr. A path or a URL is long and mixed, too, but starts after a slash.
_SECRET_NAME = re.compile(r"token|secret|password|key", re.IGNORECASE)
_SECRET_PATTERN = re.compile(
    r"(?i:bearer)\s+\S+"
    r"|(?i:token|secret|password|key)[\"']?(?:=\S+|\s*[=:]\s*(?=\S*\d)\S{8,})"
    r"|eyJ\S+"
    r"|(?<![\w/~.-])(?![/~.])(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])[\w+/=.~-]{32,}"
)


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: Secret = Secret()
    client_certificate_data: Secret = Secret()
    client_key_data: Secret = Secret()
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Status | None = None


def stdin_is_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


class ExecPlugin:
    """Credentials printed by a program."""

    def __init__(
        self,
        settings: Exec,
        owner: str,
        clock: Clock,
        environ: Mapping[str, str],
        cluster_info: Callable[[], Mapping[str, object]] = dict,
        has_terminal: Callable[[], bool] = stdin_is_terminal,
    ) -> None:
        """Raises Misconfigured if the settings alone are wrong; the program is looked up when it runs."""
        self._about = f'the exec plugin "{settings.command}" of {owner}'
        self._settings = _validate(settings, owner)
        self._clock = clock
        self._environ = environ
        self._cluster_info = cluster_info
        self._has_terminal = has_terminal
        self._run_lock = asyncio.Lock()
        self._credentials: Credentials | None = None
        self._expires_at: datetime | None = None
        self._ran_at = float("-inf")
        self._failure = ""
        self._refused = False  # the server refused the credentials of the last run

    async def credentials(self) -> Credentials:
        if self._credentials is not None and not self._needs_renewal():
            return self._credentials
        async with self._run_lock:
            if self._credentials is not None and not self._needs_renewal():
                return self._credentials
            if self._failure and self._just_ran():
                raise Misconfigured(self._failure)  # requests that waited for a run share its failure
            try:
                status = self._check_expiry(await self._run())
            except Misconfigured as problem:
                self._failure = str(problem)
                raise
            finally:
                self._ran_at = self._clock.monotonic()
            self._failure = ""
            self._credentials, self._expires_at = self._to_credentials(status), status.expiration_timestamp
            return self._credentials

    async def renew(self, refused: Credentials | None) -> bool:
        if refused is None or refused is self._credentials:
            self._credentials, self._refused = None, True
        return True  # dropped just now, or another task has already stored newer ones

    def _needs_renewal(self) -> bool:
        if self._expires_at is None or self._just_ran():
            return False
        return self._clock.now() >= self._expires_at - _RENEW_BEFORE_EXPIRY

    def _check_expiry(self, status: _Status) -> _Status:
        """Raises Misconfigured for expired credentials that replace refused ones.

        An expiry in the past alone does not count: this machine's clock may be wrong.
        """
        refused, self._refused = self._refused, False
        if refused and status.expiration_timestamp and status.expiration_timestamp <= self._clock.now():
            since = status.expiration_timestamp.isoformat(" ", "seconds")
            raise Misconfigured(
                f"{self._about} printed a credential that expired at {since}, and the server refused it: log in again"
            )
        return status

    def _just_ran(self) -> bool:
        return self._clock.monotonic() - self._ran_at < _MIN_RERUN_SECONDS

    async def _run(self) -> _Status:
        interactive = self._is_interactive()
        limit_seconds = _INTERACTIVE_TIMEOUT_SECONDS if interactive else _TIMEOUT_SECONDS
        with _open_stderr_file() as stderr_file:
            try:
                async with asyncio.timeout(None) as limit:
                    timer = self._clock.call_later(limit_seconds, lambda: limit.reschedule(0))
                    try:
                        code, output = await self._run_program(interactive, stderr_file)
                    finally:
                        timer.cancel()
            except TimeoutError:
                message = f"{self._about} was killed, since it had not finished after {limit_seconds:.0f} s"
                raise Misconfigured(f"{message}: run it by hand to see why") from None
            if code != 0:
                stderr_text = self._without_secrets(_stderr_tail(stderr_file))
                end = f"exited {code}" if code > 0 else f"was ended by signal {-code}"
                advice = (
                    f"{stderr_text}; log in again, or run it by hand" if stderr_text else "run it by hand to see why"
                )
                raise Misconfigured(f"{self._about} {end}: {advice}")
        return self._parse_output(output)

    async def _run_program(self, interactive: bool, stderr_file: IO[bytes]) -> tuple[int, bytes]:
        path = shutil.which(self._settings.command, path=self._environ.get("PATH"))
        if path is None:
            raise Misconfigured(self._start_failure("was not found"))
        command = [path, *self._settings.args]
        try:
            async with _start_process(command, self._variables(interactive), interactive, stderr_file) as (
                process,
                stdout,
            ):
                output = b""
                while chunk := await stdout.read(_MAX_OUTPUT_BYTES):
                    output += chunk
                    if len(output) > _MAX_OUTPUT_BYTES:
                        raise Misconfigured(
                            f"{self._about} does not stop printing: run it by hand to see what it prints"
                        )
                return await process.wait(), output
        except OSError as problem:
            raise Misconfigured(self._start_failure(f"cannot be started ({problem.strerror})")) from None

    def _start_failure(self, fault: str) -> str:
        hint = " ".join(self._settings.install_hint.split())
        return f"{self._about} {fault}: {hint or 'install it, or correct the command in the kubeconfig'}"

    def _is_interactive(self) -> bool:
        mode = self._settings.interactive_mode or "IfAvailable"
        terminal = mode != "Never" and self._has_terminal()
        if mode == "Always" and not terminal:
            raise Misconfigured(f"{self._about} needs to prompt the user, but there is no terminal: run it in one")
        return terminal

    def _variables(self, interactive: bool) -> dict[str, str]:
        spec: dict[str, object] = {"interactive": interactive}
        if self._settings.provide_cluster_info:
            spec["cluster"] = self._cluster_info()
        request = {"kind": "ExecCredential", "apiVersion": self._settings.api_version, "spec": spec}
        own = {variable.name: variable.value.reveal() for variable in self._settings.env}
        return {**self._environ, **own, "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode()}

    def _without_secrets(self, text: str) -> str:
        for variable in self._settings.env:
            if variable.value and _SECRET_NAME.search(variable.name):
                text = text.replace(variable.value.reveal(), "…")
        return _SECRET_PATTERN.sub("…", text)

    def _parse_output(self, output: bytes) -> _Status:
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential, dec_hook=decode_secret)
        except msgspec.ValidationError as problem:
            raise Misconfigured(
                f"{self._about} printed an invalid ExecCredential: {problem}; update the plugin"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Misconfigured(
                f"{self._about} printed {len(output)} bytes that are not JSON: run it by hand to see them"
            ) from None
        if credential.kind != "ExecCredential":
            raise Misconfigured(
                f'{self._about} printed the kind "{credential.kind[:40]}", not ExecCredential: update it'
            )
        if credential.api_version != self._settings.api_version:
            raise Misconfigured(
                f'{self._about} printed apiVersion "{credential.api_version[:60]}" '
                f"instead of {self._settings.api_version}: "
                "change the kubeconfig or update the plugin"
            )
        status = credential.status or _Status()
        if not (status.token or status.client_certificate_data or status.client_key_data):
            raise Misconfigured(f"{self._about} printed neither a token nor a certificate: log in again")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise Misconfigured(f"{self._about} printed only one of certificate and key: update the plugin")
        return status

    def _to_credentials(self, status: _Status) -> Credentials:
        token = Secret(status.token.reveal().strip()) if status.token else None
        if not status.client_certificate_data:
            return Credentials(token)
        origin = f"the client certificate from {self._about}"
        return Credentials(token, KeyPair(status.client_certificate_data, status.client_key_data, origin))


def _validate(settings: Exec, owner: str) -> Exec:
    field = f"the exec section of {owner}"
    if not settings.command:
        raise Misconfigured(f"{field} has no command: name the program to run")
    if settings.api_version not in EXEC_API_VERSIONS:
        raise Misconfigured(
            f'{field} has the apiVersion "{settings.api_version}", '
            f"but only {' and '.join(EXEC_API_VERSIONS)} are supported: "
            "update the plugin, and write a new kubeconfig"
        )
    if settings.api_version == EXEC_API_VERSIONS[0] and not settings.interactive_mode:
        raise Misconfigured(f"{field} has no interactiveMode, which {EXEC_API_VERSIONS[0]} requires: add IfAvailable")
    if settings.interactive_mode and settings.interactive_mode not in INTERACTIVE_MODES:
        raise Misconfigured(
            f'{field} has the interactiveMode "{settings.interactive_mode}": use one of {", ".join(INTERACTIVE_MODES)}'
        )
    return settings


@asynccontextmanager
async def _start_process(
    command: list[str], variables: Mapping[str, str], interactive: bool, stderr_file: IO[bytes]
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """Yield a running program and its stdout. It is killed with its children if the block ends first."""
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader()
    reading, writing = os.pipe()  # our own pipe can be closed though a child of the plugin still holds its other end
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reading, "rb", 0))
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=variables,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=None if _stderr_is_terminal() else stderr_file,
                start_new_session=not interactive,  # so that it can be killed with its children, and cannot prompt
            )
        finally:
            os.close(writing)
        try:
            yield process, stdout
        except BaseException:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL) if interactive else os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
    finally:
        pipe.close()


def _stderr_is_terminal() -> bool:
    """Whether our stderr is a terminal: then a plugin can print there which page to open and which code to type."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def _open_stderr_file() -> IO[bytes]:
    """A file, not a pipe: a helper that the plugin leaves running may keep it open."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # a read-only container: the plugin may still work: its stderr is only for error messages
        return open(os.devnull, "w+b")


def _stderr_tail(stderr_file: IO[bytes]) -> str:
    """The end of what a plugin wrote to stderr, as one line."""
    stderr_file.seek(0, os.SEEK_END)
    stderr_file.seek(max(0, stderr_file.tell() - 4096))
    lines = [line.strip() for line in stderr_file.read().decode(errors="replace").splitlines() if line.strip()]
    return " / ".join(line[:_MAX_STDERR_LINE_CHARACTERS] for line in lines[-_MAX_STDERR_LINES:])
