"""Trains a wide-and-deep model with parameter servers: the same program runs in every pod of the job.

Who a pod is and where its peers are stands in the environment, where the operator puts it: TRAINING_ROLE, POD_IP,
PADDLE_PSERVERS_IP_PORT_LIST ... Yours to set: EPOCHS, ROWS, BATCH, LEARNING_RATE, and CHECKPOINT_DIR, a folder that all
pods share: a job that is started again goes on from the last epoch in it.
"""

import os
import signal

# The first process of a container ignores SIGTERM until it has a handler; Paddle's comes only with its import.
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
os.environ.setdefault("FLAGS_enable_pir_api", "0")  # Paddle 3.0 has no parameter servers with its new kind of program

import hashlib
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import paddle
from paddle.distributed import fleet
from paddle.distributed.fleet.utils.ps_util import DistributedInfer

from board import Board
from checkpoint import Checkpoints
from data import one_row_for_each_value, rows, share_of, slots
from hush import hushed
from model import Model, feed, wide_and_deep
from progress import Progress
from servers import pull_dense, wait_for_servers

EPOCHS = int(os.environ.get("EPOCHS", "5"))
ROWS = int(os.environ.get("ROWS", "20000"))  # for all workers together
BATCH = int(os.environ.get("BATCH", "50"))  # for each worker
LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "0.005"))
CHECKPOINT_DIR = os.environ.get("CHECKPOINT_DIR") and Path(os.environ["CHECKPOINT_DIR"]).absolute()
HELD_OUT = 1000
PATIENCE = 100  # so often the workers compare their parameters


def main() -> None:
    check_that_this_can_work()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # Paddle leaves files behind where it runs (http.log, *_train_desc.prototxt)
        model, evaluation = built()
        if fleet.is_server():
            serve()
        else:
            work(model, evaluation)


@hushed()
def built() -> tuple[Model, paddle.static.Program]:
    """The model, which every pod needs to know, and the program that evaluates it."""
    paddle.enable_static()
    paddle.seed(1)
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False), log_level="WARNING")
    model = wide_and_deep()
    evaluation = paddle.static.default_main_program().clone(for_test=True)
    strategy = fleet.DistributedStrategy()
    # No worker waits for another. Of the other ways, in 2.6.2 a_sync=False crashes the workers, and with k_steps (geo)
    # there is no sparse embedding.
    strategy.a_sync = True
    strategy.a_sync_configs = {"launch_barrier": False}  # it looks for the servers every 3 s only; see wait_for_servers
    # In so many files a checkpoint keeps the embedding. With Paddle's 1000, writing them takes longer than an epoch.
    strategy.sparse_table_configs = {"embedding": {"table_parameters.embedding.shard_num": 8}}
    fleet.distributed_optimizer(paddle.optimizer.Adam(LEARNING_RATE), strategy).minimize(model.loss)
    return model, evaluation


@hushed()
def serve() -> None:
    fleet.init_server()
    fleet.run_server()  # for ever: the operator ends the servers once all workers are done


def work(model: Model, evaluation: paddle.static.Program) -> None:
    try:
        Worker(model, evaluation).train()
    except Exception:  # noqa: BLE001
        # Python crashes where it ends while Paddle's threads talk to the servers, and 139 would hide what happened.
        traceback.print_exc()
        os._exit(1)


def check_that_this_can_work() -> None:
    if not hasattr(paddle.base.core, "DistFleetWrapper"):  # core.is_compiled_with_brpc() says True even so
        sys.exit(f"this Paddle ({paddle.__version__}) has no parameter servers: use 2.6.2 or 3.0.0")
    for name in ("TRAINING_ROLE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS"):
        if not os.environ.get(name):
            sys.exit(
                f"{name} is not set, but this program is one pod of a job with parameter servers: start the job, "
                "for example by paddlejob run deploy/examples/wide_and_deep.yaml"
            )


class Worker:
    def __init__(self, model: Model, evaluation: paddle.static.Program) -> None:
        self.model = model
        self.rank, workers = fleet.worker_index(), fleet.worker_num()
        self.board = Board(self.rank, os.environ["PADDLE_TRAINER_ENDPOINTS"].split(","))
        self.progress = Progress(self.rank, workers)
        self.checkpoints = Checkpoints(CHECKPOINT_DIR) if CHECKPOINT_DIR else None
        self.share = share_of(rows(ROWS, "to learn from"), self.rank, workers)
        self.held_out = feed(rows(HELD_OUT, "held out"))
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        self.epochs_before = self.join()
        with hushed():  # after joining: only then it is known which table of the servers has the embedding
            self.evaluation = DistributedInfer(evaluation).get_dist_infer_program()

    @hushed()
    def join(self) -> int:
        """Meet the servers and the other workers; how many epochs were trained before."""
        self.executor.run(paddle.static.default_startup_program())
        wait_for_servers()
        fleet.init_worker()  # worker 0 gives the servers their first parameters
        epochs = self.load() if self.checkpoints else 0
        # In init_worker all wait for worker 0, but only if gloo is on: without it some have fetched nothing but zeros.
        self.board.notes("the servers have their parameters")
        return epochs

    def load(self) -> int:
        """From the checkpoint, if there is one; how many epochs are in it."""
        epochs, folder = self.checkpoints.latest() or (0, None)
        found = [int(note) for note in self.board.notes("epochs in the checkpoint", str(epochs))]
        if self.rank and epochs > found[0]:  # the others have trained since they met: this worker has come back alone
            self.board.notes(f"epoch {epochs} is saved")  # worker 0 may still wait for it
            return epochs  # the servers know more than the checkpoint does
        if len(set(found)) > 1:
            raise ValueError(
                f"CHECKPOINT_DIR ({CHECKPOINT_DIR}) must be one folder for all pods, but workers find epochs {found}"
            )
        if folder:
            fleet.load_model(str(folder), mode=0)  # each server reads its part
        return epochs

    def train(self) -> None:
        steps = -(-len(self.share) // BATCH)
        self.progress.tell(self.epochs_before * steps, EPOCHS * steps, **self.evaluated())
        Path("rows").write_text("".join(f"{slots(row)}\n" for row in self.share))
        for epoch in range(self.epochs_before + 1, EPOCHS + 1):
            self.train_epoch()
            self.progress.tell(epoch * steps, EPOCHS * steps, **self.evaluated())
            self.save(epoch)
        self.end()

    @hushed()
    def train_epoch(self) -> None:
        """From a file: executor.run(feed=...) would send gradients, but never fetch what comes of them."""
        dataset = paddle.distributed.QueueDataset()
        dataset.init(use_var=self.model.inputs, pipe_command="cat", batch_size=BATCH, thread_num=1)
        dataset.set_filelist(["rows"])
        self.executor.train_from_dataset(paddle.static.default_main_program(), dataset)
        self.progress.trained(len(self.share))

    @hushed()
    def evaluated(self) -> dict[str, float]:
        pull_dense()
        clicks, loss = self.run(self.held_out, [self.model.clicks, self.model.loss])
        right = (clicks > 0.5) == self.held_out["clicked"]
        return {"loss": loss.item(), "accuracy": right.mean().item()}  # not float(loss): NumPy takes only a true scalar

    def run(self, rows: dict[str, np.ndarray], wanted: list[paddle.static.Variable]) -> list[np.ndarray]:
        # A new executor each time: train_from_dataset drops scopes that a used one still points to.
        executor = paddle.static.Executor(paddle.CPUPlace())
        return executor.run(self.evaluation, feed=rows, fetch_list=[variable.name for variable in wanted])

    @hushed()
    def save(self, epoch: int) -> None:
        """While all workers wait, so that the checkpoint is of one moment. The servers write, each its part."""
        if not self.checkpoints:
            return
        part = self.checkpoints.part(epoch) if self.rank == 0 else None
        (path, *_) = self.board.notes(f"epoch {epoch} is trained", str(part))
        fleet.save_persistables(self.executor, path, mode=0)
        if part:
            self.checkpoints.keep(part)
        self.board.notes(f"epoch {epoch} is saved")

    def end(self) -> None:
        """Gradients may still be under way: compare until all workers see the same parameters."""
        for attempt in range(PATIENCE):
            digest = self.digest()
            agreed = len(set(self.board.notes(f"parameters, look {attempt}", digest))) == 1
            if agreed:
                break
            time.sleep(0.1)
        self.progress.end(**self.evaluated(), parameters=digest, agreed=agreed)
        if not agreed:
            raise RuntimeError("the workers still see different parameters: do they have the same servers?")
        self.board.close()
        fleet.stop_worker()

    @hushed()
    def digest(self) -> str:
        """Of all parameters as the servers have them now: the dense ones, and the vector of each feature."""
        scope = paddle.static.global_scope()
        dense = [np.array(scope.find_var(name).get_tensor()) for name in pull_dense()]
        vectors = self.run(feed(one_row_for_each_value()), self.model.embedded)
        return hashlib.sha256(b"".join(values.tobytes() for values in [*dense, *vectors])).hexdigest()


if __name__ == "__main__":
    main()
