"""Collective operations of the workers; with one worker they are local."""

import os

import paddle
import paddle.distributed as dist


def init_workers() -> tuple[int, int]:
    """Initialise the process group; return this worker's rank and the world size."""
    if paddle.device.cuda.device_count() == 0:
        paddle.set_device("cpu")
        # Without this, plain python (not launch) gets no process group on a machine without GPUs. With GPUs it would
        # prevent NCCL.
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
        # Not fleet.init: it creates a process group for each kind of parallelism, and on a busy machine gloo sometimes
        # mixes them up ("connect: connection refused", seen with 2.6.2). This creates one.
        dist.init_parallel_env()
    return dist.get_rank(), dist.get_world_size()


def data_parallel(network: paddle.nn.Layer) -> paddle.nn.Layer:
    """Wrap the network so that gradients are averaged over all workers."""
    return paddle.DataParallel(network) if dist.get_world_size() > 1 else network


def all_gather(value: float) -> list[float]:
    """The values of all workers by rank."""
    if dist.get_world_size() == 1:
        return [value]
    values: list[paddle.Tensor] = []
    dist.all_gather(values, paddle.to_tensor([value], dtype="int64" if isinstance(value, int) else "float64"))
    return [each.item() for each in values]  # not float(each): NumPy accepts only a true scalar
