"""The machine-readable lines PADDLE_PROGRESS and PADDLE_RESULT, as images/README.md describes them."""

import json
from typing import Any

import pytest

from paddle_operator.cli.training_progress import parse_progress, parse_result
from tests.images.programs import RESNET, WIDE_AND_DEEP, load_module

Captured = pytest.CaptureFixture[str]
progress = load_module(RESNET, "progress")


def test_both_images_ship_the_same_module() -> None:
    assert (RESNET / "progress.py").read_text() == (WIDE_AND_DEEP / "progress.py").read_text()


def read_line(captured: Captured) -> tuple[str, dict[str, Any]]:
    """The captured output, which must be one complete line."""
    text = captured.readouterr().out
    assert text.endswith("}\n")
    assert text.count("\n") == 1
    kind, values = text.split(" ", 1)
    return kind, json.loads(values, parse_constant=pytest.fail)


def test_a_step_is_one_line_of_json(capsys: Captured) -> None:
    progress.Progress(1, 2).report(10, 100, loss=0.41, accuracy=0.5)
    kind, values = read_line(capsys)
    assert kind == "PADDLE_PROGRESS"
    assert values.pop("samples_per_second") == 0
    assert values == {"rank": 1, "workers": 2, "step": 10, "of": 100, "loss": 0.41, "accuracy": 0.5}


def test_the_result_is_one_line_of_json(capsys: Captured) -> None:
    progress.Progress(0, 1).report_result(loss=0.1, accuracy=0.97, parameters="ab12", agreed=True)
    expected = {"rank": 0, "workers": 1, "loss": 0.1, "accuracy": 0.97, "parameters": "ab12", "agreed": True}
    assert read_line(capsys) == ("PADDLE_RESULT", expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_loss_is_null(value: float, capsys: Captured) -> None:
    progress.Progress(0, 1).report(1, 2, loss=value)
    assert read_line(capsys)[1]["loss"] is None


def test_speed_covers_the_interval_since_the_last_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    reporter = progress.Progress(0, 1)
    for samples, seconds, speed in [(300, 2.0, 150.0), (100, 4.0, 25.0), (0, 1.0, 0.0)]:
        reporter.add_samples(samples)
        now[0] += seconds
        reporter.report(1, 2)
        assert read_line(capsys)[1]["samples_per_second"] == speed


def test_cli_parses_the_programs_output(capsys: Captured) -> None:
    reporter = progress.Progress(0, 2)
    reporter.report(10, 100, loss=0.25, accuracy=0.5)
    reporter.report_result(loss=0.1, accuracy=0.97)
    step, end = capsys.readouterr().out.splitlines()
    parsed = parse_progress(step)
    assert parsed
    assert (parsed.step, parsed.of, parsed.loss) == (10, 100, 0.25)
    assert parse_result(end) == {"rank": 0, "workers": 2, "loss": 0.1, "accuracy": 0.97}
