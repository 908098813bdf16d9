"""An import against the grain is found, however it is spelled."""

from pathlib import Path

import pytest

from tools.layers import broken_rules


def a_module(source: Path, path: str, code: str) -> None:
    file = source / "paddle_operator" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("kube/client.py", "from paddle_operator.api import rules"),
        ("kube/client.py", "from ..api.rules import Rule"),
        ("kube/client.py", "def late():\n    import paddle_operator.api.paddlejob_rules"),
        ("plan/paddlejob.py", "from paddle_operator.kube.client import Client"),
        ("plan/paddlejob.py", "from paddle_operator.kube import client"),
        ("plan/paddlejob.py", "from paddle_operator import kube"),
        ("local/node.py", "import paddle_operator.manager"),
        ("colour/red.py", "import os"),
    ],
)
def test_forbidden_import_is_reported(tmp_path: Path, path: str, code: str) -> None:
    a_module(tmp_path, path, code)
    (sentence,) = broken_rules(tmp_path)
    assert path in sentence


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("kube/client.py", "from paddle_operator.kube.errors import Refused\nfrom .errors import Refused\nimport api"),
        ("plan/paddlejob.py", "from paddle_operator.kube.objects import Pod\nfrom paddle_operator.kube import objects"),
        ("api/crd.py", "from paddle_operator import __version__"),
        ("manager.py", "from paddle_operator.cli import run"),
    ],
)
def test_allowed_import_is_not_reported(tmp_path: Path, path: str, code: str) -> None:
    a_module(tmp_path, path, code)
    assert list(broken_rules(tmp_path)) == []
