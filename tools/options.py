"""docs/en/options.md and docs/zh_CN/options.md: every flag of the operator and every value of its chart.

They are read from where they are defined. The Chinese meanings and the Chinese page are in options.zh.toml.
"""

import argparse
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from paddle_operator.manager import parser

VALUES = Path(__file__).parent.parent / "charts/paddle-operator/values.yaml"
CHINESE = Path(__file__).parent / "options.zh.toml"
LINE = re.compile(r"^(?P<indent> *)(?P<name>[\w-]+):(?P<value>.*)$")
PAGE = """\
# Every flag and every value

You install the operator and want to know what can be set. 简体中文：[options.md](../zh_CN/options.md)

Generated from `paddle_operator/manager.py` and `charts/paddle-operator/values.yaml` by `python -m tools.generate`;
`make lint` fails if it is stale.

## Flags of /manager

In `deploy/v1/operator.yaml` they are `args`; in the chart each has a value, or goes into `extraArgs`.

| flag | default | meaning |
|---|---|---|
{flags}

`--initImage` and the zap flags of the Go operator are accepted without effect; a log line says so.

## Values of the chart

`helm install paddle-operator charts/paddle-operator --set jobnamespace=team-a`

| value | default | meaning |
|---|---|---|
{values}
"""


class Option(NamedTuple):
    name: str
    default: str | None
    """None: a switch, which is off."""
    meaning: str


class Translation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of one language."""

    page: str
    off: str
    meanings: dict[str, str]


class IncompleteTranslation(Exception):
    """A flag or value has no meaning in a language, or a meaning has no flag or value."""


def english() -> Translation:
    return Translation(PAGE, "off", {option.name: option.meaning for option in (*flags(), *values())})


def chinese() -> Translation:
    return msgspec.toml.decode(CHINESE.read_text(), type=Translation)


def options(translation: Translation) -> str:
    """The page in one language. Raises IncompleteTranslation."""
    names = [option.name for option in (*flags(), *values())]
    errors = [f"{name} has no Chinese meaning" for name in names if name not in translation.meanings]
    errors += [
        f"{name} has a Chinese meaning, but is not a flag or value" for name in translation.meanings.keys() - names
    ]
    if errors:
        raise IncompleteTranslation(f"{CHINESE.name}: {'; '.join(sorted(errors))}")
    return translation.page.format(flags=_rows(flags(), translation), values=_rows(values(), translation))


def _rows(options: list[Option], translation: Translation) -> str:
    return "\n".join(
        f"| `{option.name}` | {_default(option, translation)} | {translation.meanings[option.name]} |"
        for option in options
    )


def _default(option: Option, translation: Translation) -> str:
    if option.default is None:
        return translation.off
    return f"`{option.default}`" if option.default else ""


def flags() -> list[Option]:
    visible = [action for action in parser()._actions if action.help is not argparse.SUPPRESS]
    return [
        Option(
            action.option_strings[-1],
            None if isinstance(action.default, bool) else str(action.default or ""),
            action.help or ", ".join(action.choices or ()),
        )
        for action in visible
        if action.dest not in ("help", "version")
    ]


def values() -> list[Option]:
    """The values of the chart; the comment above each is its meaning."""
    found, path, meaning = list[Option](), list[str](), list[str]()
    for line in VALUES.read_text().splitlines():
        if line.lstrip().startswith("# "):
            meaning.append(line.lstrip()[2:])
        elif match := LINE.match(line):
            depth = len(match["indent"]) // 2
            path = [*path[:depth], match["name"]]
            if value := match["value"].strip():
                found.append(Option(".".join(path), value, " ".join(meaning)))
                meaning = []
        else:
            meaning = []
    return found
