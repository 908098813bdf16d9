"""paddlejob run: creates a job from its YAML and shows it until it has finished, as `docker compose up` does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from paddle_operator.cli import tables
from paddle_operator.cli.exit_codes import COMPLETED
from paddle_operator.cli.options import with_target
from paddle_operator.cli.output import echo
from paddle_operator.client import manifests
from paddle_operator.client.manifests import Document, UsageError
from paddle_operator.client.submit import UNCHANGED, apply_other_objects, submit, with_namespace
from paddle_operator.embedded.state import DEFAULT_NAMESPACE
from paddle_operator.embedded.target import Target, server_config
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import AlreadyExists
from paddle_operator.plan.job_view import PADDLE_JOBS

STDIN = "-"

SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field: worker.replicas=4.")
]
ImagesOption = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="NAME=DIR", help="The directory, with a Dockerfile, behind an image."),
]


@dataclass(frozen=True)
class RunRequest:
    """The job and the objects beside it, as the command line has changed them."""

    job: Document
    other_objects: list[Document]
    timeout_seconds: float | None = None


@with_target
def run(
    *,
    target: Target,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A YAML with one PaddleJob; - reads standard input.")],
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Create it and return at once.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, print what would be applied.")] = False,
    cpu: Annotated[bool, typer.Option("--cpu", help="Remove GPUs, nodeSelector and affinity from the job.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Another name for the job.")] = None,
    settings: SettingsOption = None,
    images: ImagesOption = None,
    build_args: Annotated[
        list[str] | None, typer.Option("--build-arg", metavar="NAME=VALUE", help="An ARG of the Dockerfiles.")
    ] = None,
    volumes: Annotated[
        list[str] | None, typer.Option("--volume", metavar="CLAIM=DIR", help="The directory behind a volume claim.")
    ] = None,
    python: Annotated[
        Path | None, typer.Option("--python", help="A Python of this machine instead of that of the images.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=1, help="Stop the job after this many seconds.")
    ] = None,
) -> None:
    """Run a job and show its pods, logs and progress until it has finished.

    Exit code: 0 completed, 1 failed, 2 nothing was run, 3 stopped by --timeout, 130 stopped by Ctrl-C.

    \b
    paddlejob run deploy/examples/wide_and_deep.yaml
    paddlejob run resnet.yaml --cpu --set worker.replicas=4
    paddlejob run job.yaml --image demo:v1=./my-image
    """
    from paddle_operator.embedded.overrides import LocalOverrides, store_overrides  # 40 ms that no other verb needs

    overrides = LocalOverrides.parse(images or [], build_args or [], volumes or [], python)
    request = build_request(file, name, settings or [], cpu=cpu, timeout_seconds=timeout)
    if target.is_embedded:
        namespace = request.job["metadata"].get("namespace") or target.namespace or DEFAULT_NAMESPACE
        store_overrides(target.state, overrides, namespace, request.job)
    raise typer.Exit(asyncio.run(_dry_run(target, request) if dry_run else _run(target, request, detach=detach)))


def build_request(
    file: str, name: str | None, settings: list[str], *, cpu: bool, timeout_seconds: float | None
) -> RunRequest:
    """Read the file and apply the options of the command line. Raises UsageError."""
    source = "standard input" if file == STDIN else file
    job, other_objects = manifests.split_job(manifests.read_documents(_read_text(file), source), source)
    job = manifests.apply_settings(job, settings)
    if name:
        job = {**job, "metadata": {**job["metadata"], "name": name}}
    if cpu:
        job, removed = manifests.without_devices(job)
        if removed:
            echo(f"--cpu removes: {', '.join(removed)}")
    return RunRequest(job, other_objects, timeout_seconds)


def _read_text(file: str) -> str:
    if file == STDIN:
        return typer.get_text_stream("stdin").read()
    try:
        return Path(file).read_text()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text: it must be YAML in UTF-8") from None


async def _run(target: Target, request: RunRequest, *, detach: bool) -> int:
    fail_if_stuck = not target.is_running and not detach
    async with _cluster_client(target, detach=detach) as client:
        namespace = target.namespace_of(client)
        await apply_other_objects(client, [with_namespace(each, namespace) for each in request.other_objects])
        job, action = await submit(client, with_namespace(request.job, namespace))
        echo(f"{job.key.name} {action}")
        if detach:
            echo(f"follow it with: paddlejob logs -f {job.key.name}")
            return COMPLETED
        from paddle_operator.cli.watch import WatchOptions, watch_until_finished  # rich, which no other verb needs

        options = WatchOptions(request.timeout_seconds, owns_job=action != UNCHANGED, fail_if_stuck=fail_if_stuck)
        return await watch_until_finished(client, job, options)


@asynccontextmanager
async def _cluster_client(target: Target, *, detach: bool) -> AsyncIterator[Client]:
    """A client of the target; an embedded cluster is started, in this process or detached, if it does not run."""
    if target.is_running:
        async with target.client() as client:
            yield client
    elif detach:
        from paddle_operator.embedded.process import start_cluster

        async with Client(server_config(await start_cluster(target.state))) as client:
            echo("the cluster keeps running; stop it with paddlejob down")
            yield client
    else:
        from paddle_operator.embedded.cluster import cluster

        async with cluster(target.state) as running, Client(server_config(running)) as client:
            yield client


async def _dry_run(target: Target, request: RunRequest) -> int:
    """Let the API server validate everything without storing it, and print it."""
    async with target.client() as client:
        namespace = target.namespace_of(client)
        job = with_namespace(request.job, namespace)
        other_objects = [with_namespace(each, namespace) for each in request.other_objects]
        await apply_other_objects(client, other_objects, dry_run=True)
        with suppress(AlreadyExists):  # validated before its name was checked
            await client.create(PADDLE_JOBS, job, strict=True, dry_run=True)
    echo("\n---\n".join(tables.as_yaml(each) for each in (*other_objects, job)))
    return COMPLETED
