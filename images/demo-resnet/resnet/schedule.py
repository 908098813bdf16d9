"""Which pictures make up each step, who takes which of them, and how fast to learn in it.

All of it follows from the number of the step: a training that goes on from a checkpoint takes the same steps as one
that was never interrupted, and the number of workers only decides into how many shares a batch is cut.
"""

from random import Random


def batches(pictures: int, size: int, epoch: int) -> list[list[int]]:
    """The pictures of each step of an epoch, in another order each time. What does not fill a batch is left out."""
    order = list(range(pictures))
    Random(f"epoch {epoch}").shuffle(order)
    return [order[start : start + size] for start in range(0, pictures - size + 1, size)]


def share_of(batch: list[int], rank: int, workers: int) -> list[int]:
    """What one worker takes; together they take each picture once."""
    return batch[rank::workers]


def pace(step: int, of: int) -> float:
    """The part of the learning rate for one step: it grows from nothing, stays, and falls back in the second half.

    At full pace from the start, rounding alone would drive a training on two workers apart from one on a single worker.
    """
    return min(1.0, 8 * (step + 1) / of, 2 * (of - step) / of)
