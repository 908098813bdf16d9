"""The options that every verb has: which cluster, which namespace. A verb takes the Target that they make."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from paddle_operator.embedded.state import State
from paddle_operator.embedded.target import Target

R = TypeVar("R")

NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The namespace; default: that of the kubeconfig.")
]
KubeconfigOption = Annotated[
    Path | None, typer.Option("--kubeconfig", help="A real cluster instead of the embedded one; also $KUBECONFIG.")
]
ContextOption = Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig.")]
LocalOption = Annotated[bool, typer.Option("--local", help="The embedded cluster, even if KUBECONFIG is set.")]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", help="The state directory of the embedded cluster; also $PADDLEJOB_STATE.", show_default=False
    ),
]
JobName = Annotated[str, typer.Argument(help="The name of a PaddleJob.", metavar="NAME")]

TARGET_OPTIONS: dict[str, tuple[Any, object]] = {
    "namespace": (NamespaceOption, None),
    "kubeconfig": (KubeconfigOption, None),
    "context": (ContextOption, None),
    "local": (LocalOption, False),
    "state": (StateOption, None),
}


def with_target(verb: Callable[..., R]) -> Callable[..., R]:
    """The verb with TARGET_OPTIONS in place of `target`.

    typer reads options from a signature and cannot nest them, so the signature is composed here: otherwise each of
    twelve verbs would repeat five parameters.
    """
    signature = inspect.signature(verb)
    own = [each for each in signature.parameters.values() if each.name != "target"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in TARGET_OPTIONS.items()
    ]

    def command(**values: Any) -> R:
        options = {name: values.pop(name) for name in TARGET_OPTIONS}
        state = State.find(os.environ, options.pop("state"))
        return verb(target=Target(state, **options), **values)

    command.__name__, command.__doc__, command.__module__ = verb.__name__, verb.__doc__, verb.__module__
    command.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
    command.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return command
