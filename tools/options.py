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

You install the operator and ask what can be set. 简体中文：[options.md](../zh_CN/options.md)

Derived from `paddle_operator/manager.py` and `charts/paddle-operator/values.yaml` by `python -m tools.generate`; a
test fails when it is stale.

## Flags of /manager

In `deploy/v1/operator.yaml` they stand under `args`; in the chart each has a value, or goes into `extraArgs`.

| flag | left out | meaning |
|---|---|---|
{flags}

`--initImage` and the zap flags of the Go operator are accepted and do nothing: the log says so.

## Values of the chart

`helm install paddle-operator charts/paddle-operator --set jobnamespace=team-a`

| value | left out | meaning |
|---|---|---|
{values}
"""


class Option(NamedTuple):
    name: str
    left_out: str | None
    """What holds then; None: it is a switch, and off."""
    meaning: str


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that differs from language to language."""

    page: str
    off: str
    meanings: dict[str, str]


class Untranslated(Exception):
    """The meanings of a language are not those of the flags and values that there are."""


def english() -> Words:
    return Words(PAGE, "off", {option.name: option.meaning for option in (*flags(), *values())})


def chinese() -> Words:
    return msgspec.toml.decode(CHINESE.read_text(), type=Words)


def options(words: Words) -> str:
    """The page in one language. Raises Untranslated."""
    names = [option.name for option in (*flags(), *values())]
    wrong = [f"{name} has no Chinese meaning" for name in names if name not in words.meanings]
    wrong += [f"{name} has a Chinese meaning, but is no flag or value" for name in words.meanings.keys() - names]
    if wrong:
        raise Untranslated(f"{CHINESE.name}: {'; '.join(sorted(wrong))}")
    return words.page.format(flags=_rows(flags(), words), values=_rows(values(), words))


def _rows(shown: list[Option], words: Words) -> str:
    return "\n".join(
        f"| `{option.name}` | {_default(option, words)} | {words.meanings[option.name]} |" for option in shown
    )


def _default(option: Option, words: Words) -> str:
    if option.left_out is None:
        return words.off
    return f"`{option.left_out}`" if option.left_out else ""


def flags() -> list[Option]:
    shown = [action for action in parser()._actions if action.help is not argparse.SUPPRESS]
    return [
        Option(
            action.option_strings[-1],
            None if isinstance(action.default, bool) else str(action.default or ""),
            action.help or ", ".join(action.choices or ()),
        )
        for action in shown
        if action.dest not in ("help", "version")
    ]


def values() -> list[Option]:
    """The comment above a value is its meaning."""
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
