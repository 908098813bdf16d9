"""Training progress, parsed from log lines."""

import pytest

from paddle_operator.cli.training_progress import TrainingProgress, format_result, parse_progress, parse_result


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            'PADDLE_PROGRESS {"step": 10, "of": 100, "loss": 0.41, "samples_per_second": 812}',
            TrainingProgress(10, 100, None, 0.41, 812),
        ),
        ("epoch: 3, step: 120, loss: 0.5312, ips: 99.5 samples/s", TrainingProgress(120, None, 3, 0.5312, 99.5)),
        ("[Epoch 0, batch 40] avg_loss: 1.25e-2", TrainingProgress(40, None, 0, 0.0125)),
        ("step 7/80 loss=2.5", TrainingProgress(7, 80, None, 2.5)),
        ("Epoch 2/10 - loss: 0.3 - 512 images/sec", TrainingProgress(None, None, 2, 0.3, 512)),
    ],
)
def test_progress_is_parsed(line: str, progress: TrainingProgress) -> None:
    assert parse_progress(line) == progress


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 1: install the package",
        "loss of data is not an option",
        "PADDLE_PROGRESS {broken",
        "server listens on 127.0.0.1:2379",
    ],
)
def test_other_lines_have_no_progress(line: str) -> None:
    assert parse_progress(line) is None


def test_missing_values_are_kept_on_merge() -> None:
    assert TrainingProgress(10, 100, None, 0.5, 800).merge(TrainingProgress(20, None, None, 0.4)) == TrainingProgress(
        20, 100, None, 0.4, 800
    )


def test_progress_is_one_short_line() -> None:
    assert str(TrainingProgress(20, 100, 1, 0.41234, 812.4)) == "epoch 1  step 20/100  loss 0.4123  812 samples/s"


def test_result_shows_only_numbers() -> None:
    result = parse_result('PADDLE_RESULT {"accuracy": 0.96875, "loss": 0.1, "parameters": "ab12", "ok": true}')
    assert result is not None
    assert format_result(result) == "accuracy 0.9688  loss 0.1"
