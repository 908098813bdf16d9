"""How far a program is, read off its lines."""

import pytest

from paddle_operator.cli.training_progress import Progress, progress_in, result_in, result_in_words


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            'PADDLE_PROGRESS {"step": 10, "of": 100, "loss": 0.41, "samples_per_second": 812}',
            Progress(10, 100, None, 0.41, 812),
        ),
        ("epoch: 3, step: 120, loss: 0.5312, ips: 99.5 samples/s", Progress(120, None, 3, 0.5312, 99.5)),
        ("[Epoch 0, batch 40] avg_loss: 1.25e-2", Progress(40, None, 0, 0.0125)),
        ("step 7/80 loss=2.5", Progress(7, 80, None, 2.5)),
        ("Epoch 2/10 - loss: 0.3 - 512 images/sec", Progress(None, None, 2, 0.3, 512)),
    ],
)
def test_a_line_tells_how_far_its_program_is(line: str, progress: Progress) -> None:
    assert progress_in(line) == progress


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
def test_a_line_about_something_else_tells_nothing(line: str) -> None:
    assert progress_in(line) is None


def test_what_a_newer_line_does_not_tell_is_kept() -> None:
    assert Progress(10, 100, None, 0.5, 800).then(Progress(20, None, None, 0.4)) == Progress(20, 100, None, 0.4, 800)


def test_progress_reads_as_one_short_line() -> None:
    assert str(Progress(20, 100, 1, 0.41234, 812.4)) == "epoch 1  step 20/100  loss 0.4123  812 samples/s"


def test_a_result_shows_its_numbers_and_keeps_digests_for_the_log() -> None:
    result = result_in('PADDLE_RESULT {"accuracy": 0.96875, "loss": 0.1, "parameters": "ab12", "ok": true}')
    assert result is not None
    assert result_in_words(result) == "accuracy 0.9688  loss 0.1"
