"""Real Paddle, through local mode, from the YAML of the documents: it learns, and all ranks end with the same model."""

from pathlib import Path

import pytest

from tests.training.command import CORPUS, EXAMPLES, Outcome, Paddlejob

pytestmark = pytest.mark.timeout(600)

SMALL = "worker.template.spec.containers.0.env"


def short(**variables: object) -> str:
    """A setting that makes the examples brief."""
    pairs = ", ".join(f"{{name: {name}, value: '{value}'}}" for name, value in variables.items())
    return f"[{pairs}]"


def check_trained(outcome: Outcome, workers: int, *, at_least: float) -> None:
    """It completed, it learnt, and everybody holds the same parameters."""
    assert outcome.code == 0, outcome.output[-6000:] + outcome.errors
    results = outcome.results
    assert sorted(results) == [f"worker-{index}" for index in range(workers)]
    assert len({each["parameters"] for each in results.values()}) == 1, results
    assert all(each["accuracy"] >= at_least for each in results.values()), results
    losses = outcome.losses("worker-0")
    assert losses[-1] < losses[0] / 2, losses
    assert "Completed" in outcome.summary


@pytest.mark.parametrize(
    ("yaml", "paddle", "gloo"),
    [
        (CORPUS / "design-1.yaml", "2.6.2", 1),
        (CORPUS / "design-1.yaml", "3.0.0", 1),
        (CORPUS / "user-guide-1.yaml", "2.6.2", 2),
        (EXAMPLES / "wide_and_deep_podip.yaml", "3.0.0", 0),
        (EXAMPLES / "wide_and_deep_service.yaml", "2.6.2", 1),
        (EXAMPLES / "wide_and_deep_service.yaml", "3.0.0", 2),
        (EXAMPLES / "wide_and_deep_host.yaml", "2.6.2", 1),
        (EXAMPLES / "wide_and_deep_host.yaml", "3.0.0", 0),
        (EXAMPLES / "wide_and_deep_volcano.yaml", "2.6.2", 0),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
async def test_parameter_servers_train_and_are_ended(paddlejob: Paddlejob, yaml: Path, paddle: str, gloo: int) -> None:
    outcome = await paddlejob("run", yaml, "--build-arg", f"PADDLE={paddle}", "--set", f"withGloo={gloo}", "--cpu")
    check_trained(outcome, 2, at_least=0.9)
    name = outcome.summary.split()[0]
    stored = await paddlejob.json(name)
    assert stored["status"]["ps"]["succeeded"] == 2, stored["status"]
