"""Kubeconfig files: their fields, kubectl's rules for merging them, and the selected context.

The first file wins for each named entry as a whole and for current-context; a relative path is relative to its file.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from paddle_operator.kube.config.credentials import Secret, decode_secret
from paddle_operator.kube.errors import Misconfigured

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Fields(msgspec.Struct, frozen=True, rename="kebab"):
    """Base of what we decode; unknown fields are ignored, as by kubectl."""


class Extension(_Fields, frozen=True):
    name: str
    extension: Any = None


class Cluster(_Fields, frozen=True):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: Secret = Secret()  # it may hold a password
    disable_compression: bool = False  # we never ask for compression; a plugin may want to know
    extensions: tuple[Extension, ...] = ()


class Variable(_Fields, frozen=True):
    name: str
    value: Secret = Secret()


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class AuthProvider(_Fields, frozen=True):
    name: str = ""


class User(_Fields, frozen=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: Secret = Secret()
    token: Secret = Secret()
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: Secret = Secret()
    impersonate: str = msgspec.field(name="as", default="")
    impersonate_uid: str = msgspec.field(name="as-uid", default="")
    impersonate_groups: tuple[str, ...] = msgspec.field(name="as-groups", default=())
    impersonate_extra: dict[str, tuple[str, ...]] = msgspec.field(name="as-user-extra", default_factory=dict)
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None


class Context(_Fields, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Fields, frozen=True):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(_Fields, frozen=True):
    name: str
    user: User = User()


class _NamedContext(_Fields, frozen=True):
    name: str
    context: Context = Context()


class _File(_Fields, frozen=True):
    kind: str = "Config"
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A named entry and its file; str() names both in messages."""

    kind: str
    name: str
    file: Path
    value: T

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}" in {home_relative(self.file)}'


@dataclass(frozen=True)
class ResolvedContext:
    """One context with the cluster and user that it refers to."""

    context: Entry[Context]
    cluster: Entry[Cluster]
    user: Entry[User]


class Kubeconfig:
    """Several files merged into one."""

    def __init__(self, files: Mapping[Path, _File]) -> None:
        self.files = tuple(files)
        self.current_context = next((file.current_context for file in files.values() if file.current_context), "")
        self.clusters = _merge(
            "cluster", {path: [(c.name, c.cluster) for c in f.clusters] for path, f in files.items()}
        )
        self.users = _merge("user", {path: [(u.name, u.user) for u in f.users] for path, f in files.items()})
        self.contexts = _merge(
            "context", {path: [(c.name, c.context) for c in f.contexts] for path, f in files.items()}
        )

    def choose(self, name: str | None = None) -> ResolvedContext:
        """The named context, else the current one. Raises Misconfigured."""
        where = ", ".join(home_relative(path) for path in self.files)
        known = ", ".join(sorted(self.contexts)) or "none"
        selected = name or self.current_context
        if not selected:
            raise Misconfigured(f"{where} has no current-context: name one of its contexts ({known})")
        if selected not in self.contexts:
            raise Misconfigured(f'there is no context "{selected}" in {where}: name one of its contexts ({known})')
        context = self.contexts[selected]
        return ResolvedContext(
            context,
            _resolve(context, "cluster", context.value.cluster, self.clusters),
            _resolve(context, "user", context.value.user, self.users),
        )


def read(path: Path | None, environ: Mapping[str, str]) -> Kubeconfig:
    """The file that is named, else the files of KUBECONFIG, else ~/.kube/config. Raises Misconfigured."""
    listed = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    paths = [path] if path else list(dict.fromkeys(listed)) or [default_path(environ)]
    texts = {file: _read_bytes(file) for file in paths}
    files = {file: _decode(file, text) for file, text in texts.items() if text is not None}
    if not files:
        tried = ", ".join(home_relative(file) for file in paths)
        raise Misconfigured(f"no kubeconfig found (tried {tried}): set KUBECONFIG, or name the file")
    return Kubeconfig(files)


def default_path(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"), ".kube", "config")


def home_relative(path: Path) -> str:
    """The path with ~ for the home directory, for messages."""
    home = os.path.expanduser("~")
    return f"~{str(path)[len(home) :]}" if str(path).startswith(home + os.sep) else str(path)


def _resolve(context: Entry[Context], kind: str, name: str, entries: Mapping[str, Entry[T]]) -> Entry[T]:
    if not name:
        raise Misconfigured(f"{context} names no {kind}: set its field {kind}")
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise Misconfigured(f'{context} names the {kind} "{name}", which does not exist: name another one ({known})')
    return entries[name]


def _merge(kind: str, named: Mapping[Path, Iterable[tuple[str, T]]]) -> dict[str, Entry[T]]:
    merged: dict[str, Entry[T]] = {}
    for path, entries in named.items():
        for name, value in entries:
            entry = merged.setdefault(name, Entry(kind, name, path, value))
            if entry.file == path and entry.value is not value:
                raise Misconfigured(f"{entry} is defined twice: remove one")
    return merged


def _read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        about = f"the kubeconfig {home_relative(path)} cannot be read: {problem.strerror}"
        raise Misconfigured(f"{about}; correct its mode, or name another file") from None


def _decode(path: Path, text: bytes) -> _File:
    about = f"the kubeconfig {home_relative(path)}"
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is one of the two safe loaders
        file = msgspec.convert(_without_nulls(document or {}), _File, dec_hook=decode_secret)
    except yaml.MarkedYAMLError as problem:  # its message may quote the line, which may hold a token
        line = problem.problem_mark.line + 1 if problem.problem_mark else 1
        raise Misconfigured(f"{about} is not YAML: correct line {line}") from None
    except msgspec.ValidationError as problem:
        raise Misconfigured(f"{about} has a field of the wrong type: {problem}; correct it there") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise Misconfigured(f"{about} is not YAML: check that it is the right file") from None
    if file.kind != "Config":
        raise Misconfigured(f"{about} is of the kind {file.kind}, not Config: check that it is the right file")
    return _with_absolute_paths(file, Path(os.path.abspath(path)).parent)


def _with_absolute_paths(file: _File, directory: Path) -> _File:
    def absolute(path: str) -> str:
        return str(directory / path) if path else ""

    def cluster(named: _NamedCluster) -> _NamedCluster:
        value = named.cluster
        return _NamedCluster(
            named.name,
            msgspec.structs.replace(value, certificate_authority=absolute(value.certificate_authority)),
        )

    def user(named: _NamedUser) -> _NamedUser:
        value, plugin = named.user, named.user.exec
        if plugin and os.sep in plugin.command:  # a bare name is looked up in PATH
            plugin = msgspec.structs.replace(plugin, command=absolute(plugin.command))
        return _NamedUser(
            named.name,
            msgspec.structs.replace(
                value,
                client_certificate=absolute(value.client_certificate),
                client_key=absolute(value.client_key),
                token_file=absolute(value.token_file),
                exec=plugin,
            ),
        )

    return msgspec.structs.replace(
        file,
        clusters=tuple(map(cluster, file.clusters)),
        users=tuple(map(user, file.users)),
    )


def _without_nulls(value: Any) -> Any:
    """kubectl writes `users: null` for an empty list, and null means absent for every other field too."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
