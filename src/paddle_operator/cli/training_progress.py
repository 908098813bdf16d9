"""Parses training progress from log lines: the JSON of the demo images, or the usual `step 7/80 loss=2.5`.

images/README.md describes the JSON format.
"""

import re

import msgspec

OWN_PROGRESS = "PADDLE_PROGRESS "
OWN_RESULT = "PADDLE_RESULT "
HIDDEN_RESULTS = ("rank", "workers")  # the summary line names the pod, and counts the workers itself

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_SIGN = r"\s*[:= ]\s*\[?"
_STEP = re.compile(rf"\b(?:global_step|step|batch|iter(?:ation)?){_SIGN}(\d+)(?:\s*/\s*(\d+))?", re.IGNORECASE)
_EPOCH = re.compile(rf"\bepoch{_SIGN}(\d+)(?:\s*/\s*(\d+))?", re.IGNORECASE)
_LOSS = re.compile(rf"\b(?:\w+_)?loss{_SIGN}({_NUMBER})", re.IGNORECASE)
_RATE = re.compile(rf"\b(?:ips|samples/s(?:ec)?|samples_per_second){_SIGN}({_NUMBER})", re.IGNORECASE)
_RATE_BEFORE = re.compile(rf"({_NUMBER})\s*(?:samples|images|rows)/s(?:ec)?\b", re.IGNORECASE)


class TrainingProgress(msgspec.Struct, frozen=True):
    """The last values that a program printed; None where it printed none."""

    step: int | None = None
    of: int | None = None
    epoch: int | None = None
    loss: float | None = None
    samples_per_second: float | None = None

    def __str__(self) -> str:
        parts = [
            f"epoch {self.epoch}" if self.epoch is not None else "",
            f"step {self.step}{f'/{self.of}' if self.of is not None else ''}" if self.step is not None else "",
            f"loss {self.loss:.4g}" if self.loss is not None else "",
            f"{self.samples_per_second:,.0f} samples/s" if self.samples_per_second is not None else "",
        ]
        return "  ".join(filter(None, parts))

    def merge(self, newer: "TrainingProgress") -> "TrainingProgress":
        """This, with the values of the newer one where it has any."""
        values = {name: value for name, value in msgspec.structs.asdict(newer).items() if value is not None}
        return msgspec.structs.replace(self, **values)


Result = dict[str, float | int | str | bool | None]


def parse_progress(line: str) -> TrainingProgress | None:
    """The progress in a line; None without a step or epoch and a loss or rate."""
    start = line.find(OWN_PROGRESS)
    if start >= 0:
        return _decode_progress(line[start + len(OWN_PROGRESS) :])
    step, epoch, loss = _STEP.search(line), _EPOCH.search(line), _LOSS.search(line)
    rate = _RATE.search(line) or _RATE_BEFORE.search(line)
    if not (step or epoch) or not (loss or rate):
        return None  # `step 1: install` is no training step
    return TrainingProgress(
        step=int(step[1]) if step else None,
        of=int(step[2]) if step and step[2] else None,
        epoch=int(epoch[1]) if epoch else None,
        loss=float(loss[1]) if loss else None,
        samples_per_second=float(rate[1]) if rate else None,
    )


def _decode_progress(text: str) -> TrainingProgress | None:
    try:
        return msgspec.json.decode(text, type=TrainingProgress, strict=False)
    except msgspec.DecodeError:
        return None


def parse_result(line: str) -> Result | None:
    start = line.find(OWN_RESULT)
    if start < 0:
        return None
    try:
        return msgspec.json.decode(line[start + len(OWN_RESULT) :], type=Result)
    except msgspec.DecodeError:
        return None


def format_result(result: Result) -> str:
    """The numbers of a result; digests and other text stay in the log."""
    shown = {
        name: value
        for name, value in result.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in HIDDEN_RESULTS
    }
    return "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown.items())
