"""The flags that every verb has: which cluster, which namespace. A verb takes a Target; these make one."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from paddle_operator.embedded.state import State
from paddle_operator.embedded.target import Target

R = TypeVar("R")

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The namespace; the kubeconfig's own by default.")
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="A real cluster instead of the embedded one; also $KUBECONFIG.")
]
Context = Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig.")]
Local = Annotated[bool, typer.Option("--local", help="The embedded cluster, also where KUBECONFIG is set.")]
StateFolder = Annotated[
    Path | None,
    typer.Option(
        "--state", help="Where the embedded cluster keeps its state; also $PADDLEJOB_STATE.", show_default=False
    ),
]
JobName = Annotated[str, typer.Argument(help="The name of a PaddleJob.", metavar="NAME")]

_SHARED: dict[str, tuple[Any, object]] = {
    "namespace": (Namespace, None),
    "kubeconfig": (Kubeconfig, None),
    "context": (Context, None),
    "local": (Local, False),
    "state": (StateFolder, None),
}


def with_target(verb: Callable[..., R]) -> Callable[..., R]:
    """The verb as typer wants it: its own parameters and the shared ones, of which a Target is made."""
    own = inspect.signature(verb)
    mine = [each for each in own.parameters.values() if each.name != "target"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _SHARED.items()
    ]

    def command(*arguments: Any, **given: Any) -> R:
        chosen = {name: given.pop(name) for name in _SHARED}
        state = State.of(os.environ, chosen.pop("state"))
        return verb(*arguments, target=Target(state, **chosen), **given)

    command.__name__ = verb.__name__
    command.__doc__ = verb.__doc__
    command.__module__ = verb.__module__
    command.__annotations__ = {each.name: each.annotation for each in (*mine, *shared)}
    mine = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in mine]
    command.__signature__ = own.replace(parameters=[*mine, *shared])  # type: ignore[attr-defined]
    return command
