"""Trains a small residual network data-parallel: each worker takes its shard of every batch.

Start it by `python -m paddle.distributed.launch train_fleet.py` or by `python train_fleet.py` in each pod, or without
a job. The world size changes the speed, not the result. You can set EPOCHS, PICTURES, BATCH, LEARNING_RATE,
PROGRESS_STEPS, CHECKPOINT_STEPS, and CHECKPOINT_DIR, a folder that all pods share: a restarted job continues from it,
also with another number of workers.
"""

import os
import signal

# The first process of a container ignores SIGTERM until it has a handler; Paddle's comes only with its import.
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))

import hashlib
import sys
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F

from checkpoint import Checkpoint
from collective import all_gather, data_parallel, init_workers
from data import SHAPES, SIZE, draw_images
from model import resnet
from progress import Progress
from schedule import batches, learning_rate_factor, shard_of

EPOCHS = int(os.environ.get("EPOCHS", "4"))
IMAGES = int(os.environ.get("PICTURES", "2048"))
BATCH = int(os.environ.get("BATCH", "64"))  # of all workers together
LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "0.01"))
CHECKPOINT_DIR = os.environ.get("CHECKPOINT_DIR")
CHECKPOINT_STEPS = int(os.environ.get("CHECKPOINT_STEPS", "20"))
PROGRESS_STEPS = int(os.environ.get("PROGRESS_STEPS", "10"))
HELD_OUT = 512


class Training:
    def __init__(self) -> None:
        self.rank, self.workers = init_workers()
        if self.workers > BATCH:
            sys.exit(f"BATCH is {BATCH}, but there are {self.workers} workers: each needs an image of every batch")
        paddle.seed(1)  # the same first parameters everywhere
        self.network = resnet(classes=len(SHAPES))
        self.model = data_parallel(self.network)
        self.optimizer = paddle.optimizer.Adam(LEARNING_RATE, parameters=self.network.parameters())
        self.step = 0
        self.stopping = False
        self.progress = Progress(self.rank, self.workers)
        self.checkpoint = Checkpoint(Path(CHECKPOINT_DIR)) if CHECKPOINT_DIR else None
        self.images, self.labels = tensors("to learn from", IMAGES)
        self.schedule = [batch for epoch in range(EPOCHS) for batch in batches(IMAGES, BATCH, epoch)]

    def run(self) -> None:
        self.resume()
        losses = []
        for batch in self.schedule[self.step :]:
            losses.append(self.train_step(batch))
            self.step += 1
            if self.step % PROGRESS_STEPS == 0 or self.step == len(self.schedule):
                loss = sum(all_gather(np.mean(losses).item())) / self.workers
                self.progress.report(self.step, len(self.schedule), loss=loss)
                losses = []
            if self.step % CHECKPOINT_STEPS == 0 or self.step == len(self.schedule) or self.stopping:
                self.save()
            if self.stopping:
                sys.exit(143)
        self.report_result()

    def train_step(self, batch: list[int]) -> float:
        """Train one step; return this worker's part of the loss, whose mean over the workers is the batch's loss."""
        shard = shard_of(batch, self.rank, self.workers)
        scores = self.model(self.images[shard])
        # Gradients are averaged over the workers: the sum weighs shards of different sizes correctly.
        loss = F.cross_entropy(scores, self.labels[shard], reduction="sum") * self.workers / len(batch)
        loss.backward()
        self.optimizer.set_lr(LEARNING_RATE * learning_rate_factor(self.step, len(self.schedule)))
        self.optimizer.step()
        self.optimizer.clear_grad()
        self.progress.add_samples(len(shard))
        return loss.item()

    def resume(self) -> None:
        """Load the checkpoint, if there is one; from here on SIGTERM saves one and exits."""
        if not self.checkpoint:
            return
        if state := self.checkpoint.load():
            self.step = state["step"]
            self.network.set_state_dict(state["network"])
            self.optimizer.set_state_dict(state["optimizer"])
        found = all_gather(self.step)
        if len(set(found)) > 1:
            sys.exit(f"CHECKPOINT_DIR ({CHECKPOINT_DIR}) must be shared by all workers, but they find steps {found}")
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_: object) -> None:
        """Stop after the current step: within a step there is no consistent state to save."""
        self.stopping = True

    def save(self) -> None:
        """Save on worker 0; the others have the same state."""
        if self.checkpoint and self.rank == 0:
            network, optimizer = self.network.state_dict(), self.optimizer.state_dict()
            self.checkpoint.save({"step": self.step, "network": network, "optimizer": optimizer})

    def report_result(self) -> None:
        digest = hashlib.sha256(b"".join(values.numpy().tobytes() for values in self.network.parameters())).hexdigest()
        agreed = len(set(all_gather(int(digest[:15], 16)))) == 1
        self.progress.report_result(**self.evaluate(), parameters=digest, agreed=agreed)
        if not agreed:
            sys.exit("the workers have different parameters: they did not train together")

    def evaluate(self) -> dict[str, float]:
        """Evaluate on held-out images; each worker takes its shard."""
        images, labels = tensors("held out", HELD_OUT)
        shard = shard_of(list(range(HELD_OUT)), self.rank, self.workers)
        self.network.eval()
        with paddle.no_grad():
            scores = self.network(images[shard])
        loss = F.cross_entropy(scores, labels[shard], reduction="sum").item()
        right = (scores.argmax(-1) == labels[shard]).sum().item()
        return {"loss": sum(all_gather(loss)) / HELD_OUT, "accuracy": sum(all_gather(right)) / HELD_OUT}


def tensors(seed: str, count: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Images with pixels between -1 and 1, and their labels."""
    images, labels = draw_images(count, seed)
    pixels = np.frombuffer(b"".join(images), "uint8").reshape(count, 1, SIZE, SIZE)
    return paddle.to_tensor(pixels.astype("float32") / 127.5 - 1), paddle.to_tensor(labels)


if __name__ == "__main__":
    Training().run()
