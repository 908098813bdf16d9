"""The batch, its shards and the learning rate of each step.

All depend on the step number only: a run resumed from a checkpoint takes the same steps as an uninterrupted one, and
the world size only decides into how many shards a batch is split.
"""

from random import Random


def batches(images: int, size: int, epoch: int) -> list[list[int]]:
    """The image indexes of each step of an epoch, shuffled per epoch; an incomplete batch is dropped."""
    order = list(range(images))
    Random(f"epoch {epoch}").shuffle(order)
    return [order[start : start + size] for start in range(0, images - size + 1, size)]


def shard_of(batch: list[int], rank: int, workers: int) -> list[int]:
    """The shard of one worker; together the workers take each image once."""
    return batch[rank::workers]


def learning_rate_factor(step: int, of: int) -> float:
    """Warm-up from 0, a constant part, and a linear decay in the second half.

    Without the warm-up, rounding alone makes a run on two workers diverge from a run on one.
    """
    return min(1.0, 8 * (step + 1) / of, 2 * (of - step) / of)
