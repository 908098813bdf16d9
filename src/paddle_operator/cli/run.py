"""paddlejob run: a job from its YAML to its end, in front of your eyes, as `docker compose up` does it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from paddle_operator.cli import tables
from paddle_operator.cli.cluster import started
from paddle_operator.cli.exit_codes import COMPLETED
from paddle_operator.cli.live_view import say
from paddle_operator.cli.options import with_target
from paddle_operator.cli.watch import Terms, attend
from paddle_operator.client import manifests
from paddle_operator.client.manifests import CannotBeUsed, Document
from paddle_operator.client.submit import UNDER_WAY, apply_beside, placed, submit
from paddle_operator.embedded.overrides import LocalOverrides, check_devices, check_images, register
from paddle_operator.embedded.state import NAMESPACE
from paddle_operator.embedded.target import Target, connection_to
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import AlreadyExists
from paddle_operator.plan.job_view import PADDLE_JOBS

STDIN = "-"


@dataclass(frozen=True)
class Order:
    """What is to be run, and how."""

    job: Document
    beside: list[Document]
    wishes: LocalOverrides
    seconds: float | None = None


@with_target
def run(
    *,
    target: Target,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A YAML with one PaddleJob; - reads standard input.")],
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and return at once.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show what would be applied.")] = False,
    cpu: Annotated[bool, typer.Option("--cpu", help="Leave out GPUs and the wish for particular nodes.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="Another name for the job.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field: worker.replicas=4.")
    ] = None,
    images: Annotated[
        list[str] | None,
        typer.Option("--image", metavar="NAME=DIR", help="The folder, with a Dockerfile, that an image is made of."),
    ] = None,
    build_args: Annotated[
        list[str] | None, typer.Option("--build-arg", metavar="NAME=VALUE", help="An ARG of the Dockerfiles.")
    ] = None,
    volumes: Annotated[
        list[str] | None, typer.Option("--volume", metavar="CLAIM=DIR", help="The folder behind a volume claim.")
    ] = None,
    python: Annotated[
        Path | None, typer.Option("--python", help="A Python of this machine instead of the images' own.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=1, help="Stop the job after so many seconds.")
    ] = None,
) -> None:
    """Run a job and show its pods, logs and progress until it has finished.

    Exit code: 0 completed, 1 failed, 2 nothing was run, 3 stopped by --timeout, 130 stopped by Ctrl-C.

    \b
    paddlejob run deploy/examples/wide_and_deep.yaml
    paddlejob run resnet.yaml --cpu --set worker.replicas=4
    paddlejob run job.yaml --image demo:v1=./my-image
    """
    wishes = LocalOverrides.of(images or [], build_args or [], volumes or [], python)
    order = prepared(file, name, settings or [], cpu=cpu, wishes=wishes, seconds=timeout)
    raise typer.Exit(asyncio.run(_run(target, order, detach=detach, dry_run=dry_run)))


def prepared(
    file: str, name: str | None, settings: list[str], *, cpu: bool, wishes: LocalOverrides, seconds: float | None
) -> Order:
    """What the file says, with what the command line changes. Raises CannotBeUsed."""
    source = "standard input" if file == STDIN else file
    job, beside = manifests.parted(manifests.read(text_of(file), source), source)
    job = manifests.with_settings(job, settings)
    if name:
        job = {**job, "metadata": {**job["metadata"], "name": name}}
    if cpu:
        job, left_out = manifests.on_cpu(job)
        if left_out:
            say(f"--cpu leaves out: {', '.join(left_out)}")
    return Order(job, beside, wishes, seconds)


def text_of(file: str) -> str:
    if file == STDIN:
        return typer.get_text_stream("stdin").read()
    try:
        return Path(file).read_text()
    except OSError as error:
        raise CannotBeUsed(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CannotBeUsed(f"{file} is no text, but must be YAML in UTF-8") from None


async def _run(target: Target, order: Order, *, detach: bool, dry_run: bool) -> int:
    if target.is_embedded:
        namespace = order.job["metadata"].get("namespace") or target.namespace or NAMESPACE
        images = manifests.images_of(order.job)
        check_devices(order.job)
        register(target.state, order.wishes, namespace, images)
        check_images(target.state, images)
    if dry_run:
        return await _rehearse(target, order)
    alone = target.is_asleep and not detach
    async with _cluster(target, detach=detach) as client:
        namespace = target.namespace_of(client)
        await apply_beside(client, [placed(each, namespace) for each in order.beside])
        submitted, what = await submit(client, placed(order.job, namespace))
        say(f"{submitted.key.name} {what}")
        if detach:
            say(f"To follow it: paddlejob logs -f {submitted.key.name}")
            return COMPLETED
        return await attend(client, submitted, Terms(order.seconds, ours=what != UNDER_WAY, alone=alone))


@asynccontextmanager
async def _cluster(target: Target, *, detach: bool) -> AsyncIterator[Client]:
    """A client of the cluster that is meant; the embedded one is brought up where it does not run."""
    if not target.is_asleep:
        async with target.client() as client:
            yield client
    elif detach:
        async with Client(connection_to(await started(target.state))) as client:
            say("the cluster stays up: paddlejob down ends it")
            yield client
    else:
        from paddle_operator.embedded.cluster import cluster

        async with cluster(target.state) as served, Client(connection_to(served)) as client:
            yield client


async def _rehearse(target: Target, order: Order) -> int:
    """Ask the API server about everything, and let it keep nothing."""
    async with target.client() as client:
        namespace = target.namespace_of(client)
        every = [placed(each, namespace) for each in (*order.beside, order.job)]
        await apply_beside(client, every[:-1], dry_run=True)
        with suppress(AlreadyExists):  # what it says has been judged before its name was
            await client.create(PADDLE_JOBS, every[-1], strict=True, dry_run=True)
    say("\n---\n".join(tables.as_yaml(each) for each in every))
    return COMPLETED
