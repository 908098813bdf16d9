"""Trains a small residual network on all workers of a job together: each takes its share of every batch.

By `python -m paddle.distributed.launch train_fleet.py` or plain `python train_fleet.py` in each pod, or without a job.
How many workers there are changes how fast it learns, not what. Yours to set: EPOCHS, PICTURES, BATCH, LEARNING_RATE,
PROGRESS_STEPS, and CHECKPOINT_DIR, a folder that all pods share, with CHECKPOINT_STEPS: a job that is started again
goes on from there, with more or fewer workers if need be.
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
from data import SHAPES, SIZE, pictures
from model import resnet
from progress import Progress
from schedule import batches, pace, share_of
from together import gathered, meet, sharing_gradients

EPOCHS = int(os.environ.get("EPOCHS", "4"))
PICTURES = int(os.environ.get("PICTURES", "2048"))
BATCH = int(os.environ.get("BATCH", "64"))  # of all workers together
LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "0.01"))
CHECKPOINT_DIR = os.environ.get("CHECKPOINT_DIR")
CHECKPOINT_STEPS = int(os.environ.get("CHECKPOINT_STEPS", "20"))
PROGRESS_STEPS = int(os.environ.get("PROGRESS_STEPS", "10"))
HELD_OUT = 512


class Training:
    def __init__(self) -> None:
        self.rank, self.workers = meet()
        if self.workers > BATCH:
            sys.exit(f"BATCH is {BATCH}, but there are {self.workers} workers: each needs a picture of every batch")
        paddle.seed(1)  # the same first parameters everywhere
        self.network = resnet(classes=len(SHAPES))
        self.model = sharing_gradients(self.network)
        self.optimizer = paddle.optimizer.Adam(LEARNING_RATE, parameters=self.network.parameters())
        self.step = 0
        self.stopping = False
        self.progress = Progress(self.rank, self.workers)
        self.checkpoint = Checkpoint(Path(CHECKPOINT_DIR)) if CHECKPOINT_DIR else None
        self.pictures, self.labels = tensors("to learn from", PICTURES)
        self.schedule = [batch for epoch in range(EPOCHS) for batch in batches(PICTURES, BATCH, epoch)]

    def run(self) -> None:
        self.resume()
        losses = []
        for batch in self.schedule[self.step :]:
            losses.append(self.learn(batch))
            self.step += 1
            if self.step % PROGRESS_STEPS == 0 or self.step == len(self.schedule):
                loss = sum(gathered(np.mean(losses).item())) / self.workers
                self.progress.tell(self.step, len(self.schedule), loss=loss)
                losses = []
            if self.step % CHECKPOINT_STEPS == 0 or self.step == len(self.schedule) or self.stopping:
                self.save()
            if self.stopping:
                sys.exit(143)
        self.end()

    def learn(self, batch: list[int]) -> float:
        """One step; this worker's part of the loss, whose mean over the workers is the loss of the batch."""
        share = share_of(batch, self.rank, self.workers)
        scores = self.model(self.pictures[share])
        # Gradients are averaged over the workers: a sum, so that shares of different sizes weigh what they should.
        loss = F.cross_entropy(scores, self.labels[share], reduction="sum") * self.workers / len(batch)
        loss.backward()
        self.optimizer.set_lr(LEARNING_RATE * pace(self.step, len(self.schedule)))
        self.optimizer.step()
        self.optimizer.clear_grad()
        self.progress.trained(len(share))
        return loss.item()

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one; from here on it is also where a SIGTERM ends this worker."""
        if not self.checkpoint:
            return
        if state := self.checkpoint.load():
            self.step = state["step"]
            self.network.set_state_dict(state["network"])
            self.optimizer.set_state_dict(state["optimizer"])
        found = gathered(self.step)
        if len(set(found)) > 1:
            sys.exit(
                f"CHECKPOINT_DIR ({CHECKPOINT_DIR}) must be one folder for all workers, but they find steps {found}"
            )
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_: object) -> None:
        """After the step that is being made: in the middle of it there is nothing whole to save."""
        self.stopping = True

    def save(self) -> None:
        """By worker 0: the others have the same."""
        if self.checkpoint and self.rank == 0:
            network, optimizer = self.network.state_dict(), self.optimizer.state_dict()
            self.checkpoint.save({"step": self.step, "network": network, "optimizer": optimizer})

    def end(self) -> None:
        digest = hashlib.sha256(b"".join(values.numpy().tobytes() for values in self.network.parameters())).hexdigest()
        agreed = len(set(gathered(int(digest[:15], 16)))) == 1
        self.progress.end(**self.evaluated(), parameters=digest, agreed=agreed)
        if not agreed:
            sys.exit("the workers have different parameters: they did not train together")

    def evaluated(self) -> dict[str, float]:
        """On pictures that were not learned from; each worker looks at its share."""
        pictures, labels = tensors("held out", HELD_OUT)
        share = share_of(list(range(HELD_OUT)), self.rank, self.workers)
        self.network.eval()
        with paddle.no_grad():
            scores = self.network(pictures[share])
        loss = F.cross_entropy(scores, labels[share], reduction="sum").item()
        right = (scores.argmax(-1) == labels[share]).sum().item()
        return {"loss": sum(gathered(loss)) / HELD_OUT, "accuracy": sum(gathered(right)) / HELD_OUT}


def tensors(seed: str, count: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Pictures, each pixel between -1 and 1, and their labels."""
    drawn, labels = pictures(count, seed)
    pixels = np.frombuffer(b"".join(drawn), "uint8").reshape(count, 1, SIZE, SIZE)
    return paddle.to_tensor(pixels.astype("float32") / 127.5 - 1), paddle.to_tensor(labels)


if __name__ == "__main__":
    Training().run()
