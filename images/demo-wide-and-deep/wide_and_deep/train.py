"""Trains a wide-and-deep model with parameter servers: the same program runs in every pod of the job.

The operator sets a pod's role and peers in the environment: TRAINING_ROLE, POD_IP, PADDLE_PSERVERS_IP_PORT_LIST ...
You can set EPOCHS, ROWS, BATCH, LEARNING_RATE, and CHECKPOINT_DIR, a folder that all pods share: a restarted job
continues after the last epoch in it.
"""

import os
import signal

# The first process of a container ignores SIGTERM until it has a handler; Paddle's comes only with its import.
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
os.environ.setdefault("FLAGS_enable_pir_api", "0")  # Paddle 3.0 has no parameter servers with PIR programs

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

from all_gather import AllGather
from checkpoint import Checkpoints
from data import format_multislot, rows, rows_covering_all_features, shard_of
from model import Model, feed, wide_and_deep
from progress import Progress
from quiet import quiet_stdout
from servers import pull_dense, wait_for_servers

EPOCHS = int(os.environ.get("EPOCHS", "5"))
ROWS = int(os.environ.get("ROWS", "20000"))  # for all workers together
BATCH = int(os.environ.get("BATCH", "50"))  # for each worker
LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "0.005"))
CHECKPOINT_DIR = os.environ.get("CHECKPOINT_DIR") and Path(os.environ["CHECKPOINT_DIR"]).absolute()
HELD_OUT = 1000
MAX_COMPARISONS = 100  # of the workers' parameters at the end


def main() -> None:
    check_environment()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # Paddle leaves files behind where it runs (http.log, *_train_desc.prototxt)
        model, evaluation = build_model()
        if fleet.is_server():
            run_server()
        else:
            run_worker(model, evaluation)


@quiet_stdout()
def build_model() -> tuple[Model, paddle.static.Program]:
    """Build the model, which every pod needs, and the program that evaluates it."""
    paddle.enable_static()
    paddle.seed(1)
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False), log_level="WARNING")
    model = wide_and_deep()
    evaluation = paddle.static.default_main_program().clone(for_test=True)
    strategy = fleet.DistributedStrategy()
    # Asynchronous: in 2.6.2 a_sync=False crashes the workers, and k_steps (geo) has no sparse embedding.
    strategy.a_sync = True
    strategy.a_sync_configs = {"launch_barrier": False}  # it polls the servers every 3 s only; see wait_for_servers
    # Files of the embedding in a checkpoint. With Paddle's default of 1000, writing takes longer than an epoch.
    strategy.sparse_table_configs = {"embedding": {"table_parameters.embedding.shard_num": 8}}
    fleet.distributed_optimizer(paddle.optimizer.Adam(LEARNING_RATE), strategy).minimize(model.loss)
    return model, evaluation


@quiet_stdout()
def run_server() -> None:
    fleet.init_server()
    fleet.run_server()  # never returns: the operator stops the servers once all workers have succeeded


def run_worker(model: Model, evaluation: paddle.static.Program) -> None:
    try:
        Worker(model, evaluation).train()
    except Exception:  # noqa: BLE001
        # Python crashes on exit while Paddle's threads talk to the servers; exit code 139 would hide the cause.
        traceback.print_exc()
        os._exit(1)


def check_environment() -> None:
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
        self.all_gather = AllGather(self.rank, os.environ["PADDLE_TRAINER_ENDPOINTS"].split(","))
        self.progress = Progress(self.rank, workers)
        self.checkpoints = Checkpoints(CHECKPOINT_DIR) if CHECKPOINT_DIR else None
        self.shard = shard_of(rows(ROWS, "to learn from"), self.rank, workers)
        self.held_out = feed(rows(HELD_OUT, "held out"))
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        self.start_epoch = self.join_job()
        with quiet_stdout():  # after joining: the table of the embedding is known only then
            self.evaluation = DistributedInfer(evaluation).get_dist_infer_program()

    @quiet_stdout()
    def join_job(self) -> int:
        """Join the servers and the other workers; return how many epochs were trained before."""
        self.executor.run(paddle.static.default_startup_program())
        wait_for_servers()
        fleet.init_worker()  # worker 0 gives the servers their first parameters
        epochs = self.load() if self.checkpoints else 0
        # init_worker waits for worker 0 only if gloo is on: without it some workers have fetched only zeros.
        self.all_gather.gather("the servers have their parameters")
        return epochs

    def load(self) -> int:
        """Load the checkpoint, if there is one; return how many epochs it has."""
        epochs, folder = self.checkpoints.latest() or (0, None)
        found = [int(value) for value in self.all_gather.gather("epochs in the checkpoint", str(epochs))]
        if self.rank and epochs > found[0]:  # the others have trained since they joined: only this worker was restarted
            self.all_gather.gather(f"epoch {epochs} is saved")  # worker 0 may still wait for it
            return epochs  # the servers are ahead of the checkpoint
        if len(set(found)) > 1:
            raise ValueError(
                f"CHECKPOINT_DIR ({CHECKPOINT_DIR}) must be shared by all pods, but workers find epochs {found}"
            )
        if folder:
            fleet.load_model(str(folder), mode=0)  # each server loads its part
        return epochs

    def train(self) -> None:
        steps = -(-len(self.shard) // BATCH)
        self.progress.report(self.start_epoch * steps, EPOCHS * steps, **self.evaluate())
        Path("rows").write_text("".join(f"{format_multislot(row)}\n" for row in self.shard))
        for epoch in range(self.start_epoch + 1, EPOCHS + 1):
            self.train_epoch()
            self.progress.report(epoch * steps, EPOCHS * steps, **self.evaluate())
            self.save(epoch)
        self.report_result()

    @quiet_stdout()
    def train_epoch(self) -> None:
        """Train from a file: executor.run(feed=...) would send gradients but never fetch updated parameters."""
        dataset = paddle.distributed.QueueDataset()
        dataset.init(use_var=self.model.inputs, pipe_command="cat", batch_size=BATCH, thread_num=1)
        dataset.set_filelist(["rows"])
        self.executor.train_from_dataset(paddle.static.default_main_program(), dataset)
        self.progress.add_samples(len(self.shard))

    @quiet_stdout()
    def evaluate(self) -> dict[str, float]:
        pull_dense()
        clicks, loss = self.run(self.held_out, [self.model.clicks, self.model.loss])
        right = (clicks > 0.5) == self.held_out["clicked"]
        return {
            "loss": loss.item(),
            "accuracy": right.mean().item(),
        }  # not float(loss): NumPy needs a true scalar

    def run(self, rows: dict[str, np.ndarray], wanted: list[paddle.static.Variable]) -> list[np.ndarray]:
        # A new executor each time: train_from_dataset drops scopes that a used one still references.
        executor = paddle.static.Executor(paddle.CPUPlace())
        return executor.run(self.evaluation, feed=rows, fetch_list=[variable.name for variable in wanted])

    @quiet_stdout()
    def save(self, epoch: int) -> None:
        """Save a consistent checkpoint while all workers wait; each server writes its part."""
        if not self.checkpoints:
            return
        partial = self.checkpoints.partial(epoch) if self.rank == 0 else None
        (path, *_) = self.all_gather.gather(f"epoch {epoch} is trained", str(partial))
        fleet.save_persistables(self.executor, path, mode=0)
        if partial:
            self.checkpoints.commit(partial)
        self.all_gather.gather(f"epoch {epoch} is saved")

    def report_result(self) -> None:
        """Gradients may still be in flight: compare until all workers see the same parameters."""
        for attempt in range(MAX_COMPARISONS):
            digest = self.digest()
            agreed = len(set(self.all_gather.gather(f"parameters, comparison {attempt}", digest))) == 1
            if agreed:
                break
            time.sleep(0.1)
        self.progress.report_result(**self.evaluate(), parameters=digest, agreed=agreed)
        if not agreed:
            raise RuntimeError("the workers see different parameters: check that they use the same servers")
        self.all_gather.close()
        fleet.stop_worker()

    @quiet_stdout()
    def digest(self) -> str:
        """A digest of all parameters on the servers: the dense ones and each feature's embedding."""
        scope = paddle.static.global_scope()
        dense = [np.array(scope.find_var(name).get_tensor()) for name in pull_dense()]
        vectors = self.run(feed(rows_covering_all_features()), self.model.embedded)
        return hashlib.sha256(b"".join(values.tobytes() for values in [*dense, *vectors])).hexdigest()


if __name__ == "__main__":
    main()
