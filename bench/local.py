"""How much slower is local mode than a shell script that starts the same processes, and how fast is its API server?

The job is four processes that sleep for a second; the rest of its time is overhead: the start of command, API server,
operator, node and sandboxes, and their exit. Paddle is not used, since it would only add noise.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from bench.program import IN_FLIGHT, resident_megabytes
from bench.table import format_number
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.objects import CONFIG_MAPS
from testbed.progress import Progress

SLEEP_PROGRAM = "import time; time.sleep(1)"
COMMAND = [sys.executable, "-c", SLEEP_PROGRAM]
PROCESSES = 4
OBJECTS = 4_000
IMAGE = "bench:v1"
PADDLEJOB = (sys.executable, "-m", "paddle_operator.cli.main")

Samples = dict[str, list[float]]


def job() -> dict[str, Any]:
    container = {"name": "paddle", "image": IMAGE, "command": COMMAND}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "bench"},
        "spec": {"worker": {"replicas": PROCESSES, "template": template}},
    }


async def local(progress: Progress, rounds: int) -> Samples:
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(yaml.safe_dump(job()))
        for turn in range(rounds):
            script_seconds, paddlejob_seconds = (
                await time_awaitable(run_script()),
                await time_awaitable(run_paddlejob(folder, path)),
            )
            figures = {
                "script": script_seconds,
                "paddlejob": paddlejob_seconds,
                "overhead": paddlejob_seconds - script_seconds,
            }
            figures |= await measure_cluster(folder)
            for name, value in figures.items():
                samples[f"local_{name}"].append(value)
            text = ", ".join(f"{name} {format_number(value)}" for name, value in figures.items())
            progress.print_line(f"local, round {turn + 1} of {rounds}: {text}")
    return samples


async def time_awaitable(awaitable: Any) -> float:
    began_at = time.monotonic()
    await awaitable
    return time.monotonic() - began_at


async def run_script() -> None:
    line = " & ".join([f"'{sys.executable}' -c '{SLEEP_PROGRAM}'"] * PROCESSES)
    await wait_success(await asyncio.create_subprocess_exec("sh", "-c", f"{line} & wait"))


async def run_paddlejob(folder: str, path: Path) -> None:
    await wait_success(await start_paddlejob(folder, "run", str(path), "--python", sys.executable))


async def start_paddlejob(folder: str, *arguments: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return await asyncio.create_subprocess_exec(
        *PADDLEJOB,
        *arguments,
        env=environment | {"PADDLEJOB_STATE": f"{folder}/state"},
        stdout=asyncio.subprocess.DEVNULL,
    )


async def wait_success(process: asyncio.subprocess.Process) -> None:
    if code := await process.wait():
        raise RuntimeError(f"the process exited with code {code}")


async def measure_cluster(folder: str) -> dict[str, float]:
    """RSS of a running cluster, and how many small objects per second another process can create in it."""
    await wait_success(await start_paddlejob(folder, "up"))
    cluster = read_cluster_file(folder)
    try:
        resident = resident_megabytes(cluster["pid"])
        async with Client(StaticServerConfig(cluster["url"], cluster["token"]), max_in_flight=IN_FLIGHT) as client:
            rate = await measure_creates_per_second(client)
    finally:
        os.kill(cluster["pid"], signal.SIGTERM)
        await wait_success(await start_paddlejob(folder, "down", "--purge"))
    return {"resident": resident, "creates": rate}


def read_cluster_file(folder: str) -> dict[str, Any]:
    cluster: dict[str, Any] = json.loads(Path(folder, "state/cluster.json").read_bytes())
    return cluster


async def measure_creates_per_second(client: Client) -> float:
    numbers = iter(range(OBJECTS))

    async def create() -> None:
        for number_ in numbers:
            metadata = {"name": f"bench-{number_}", "namespace": "default"}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}
            await client.create(CONFIG_MAPS, manifest)

    began_at = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(create())
    return OBJECTS / (time.monotonic() - began_at)
