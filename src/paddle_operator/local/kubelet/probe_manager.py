"""Is a container started, alive, ready? Asked again and again; an answer counts once it came often enough in a row."""

from collections.abc import Awaitable, Callable

from paddle_operator.kube.clock import Clock
from paddle_operator.local.kubelet.handlers import Answer
from paddle_operator.local.kubelet.pod import Probe

Ask = Callable[[], Awaitable[Answer]]


class Count:
    """How many answers of the same kind came in a row, and what that means by the probe's thresholds."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._last: bool | None = None
        self._run = 0

    def saw(self, good: bool) -> bool | None:
        """The verdict, or None while there are too few."""
        self._run = self._run + 1 if good is self._last else 1
        self._last = good
        enough = self._probe.success_threshold if good else self._probe.failure_threshold
        return good if self._run >= enough else None


async def verdicts(
    probe: Probe,
    ask: Ask,
    clock: Clock,
    decided: Callable[[bool, str], bool],
    failed: Callable[[str], None],
) -> None:
    """Ask for ever. `failed` hears of each bad answer, `decided` of each verdict; it says whether to go on."""
    count = Count(probe)
    await clock.sleep(probe.initial_delay_seconds)
    while True:
        answer = await ask()
        if not answer.good:
            failed(answer.message)
        verdict = count.saw(answer.good)
        if verdict is not None and not decided(verdict, answer.message):
            return
        await clock.sleep(probe.period_seconds)
