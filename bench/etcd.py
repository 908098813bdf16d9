"""Puts pods where the API server finds them, in etcd: a write costs an API server 2 to 5 ms, so 100,000 take too long.

What it serves then is what it would serve had it written them itself: the bytes are its own, but for names and UIDs of
the same length.
"""

import base64
import re
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from bench.pods import PODS_PER_JOB, job_of, key_of, owner_uid

OPERATIONS = 100  # in one transaction; etcd takes 128
UID = re.compile(
    rb"\x2a\x24[0-9a-f-]{36}"
)  # field 5 of a protobuf message, 36 bytes long: first of all in its metadata


class Pair(msgspec.Struct, frozen=True):
    key: bytes
    value: bytes


class Found(msgspec.Struct, frozen=True):
    kvs: list[Pair] = []
    more: bool = False


class Etcd:
    """Its gateway, which speaks JSON with every key and value in base64."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str) -> AsyncIterator["Etcd"]:
        async with aiohttp.ClientSession(url) as session:
            yield cls(session)

    async def pods(self, namespace: str, count: int) -> list[Pair]:
        """The first pods of a namespace, as the API server has stored them."""
        found = await self.under(f"/registry/pods/{namespace}/", count)
        assert len(found) == count, f"{len(found)} pods instead of {count}"
        return found

    async def under(self, prefix: str, count: int = 0) -> list[Pair]:
        """What stands under a prefix that ends with a slash; all of it, or the first so many."""
        arguments = {"key": text(prefix.encode()), "range_end": text(prefix[:-1].encode() + b"0"), "limit": count}
        return msgspec.json.decode(await self._ask("range", arguments), type=Found).kvs

    async def put(self, pair: Pair) -> None:
        await self._ask("put", {"key": text(pair.key), "value": text(pair.value)})

    async def put_at_once(self, pairs: Iterable[Pair]) -> None:
        """All with one version, which Kubernetes never does: not for pods that somebody watches already."""
        operations = [{"requestPut": {"key": text(pair.key), "value": text(pair.value)}} for pair in pairs]
        await self._ask("txn", {"success": operations})

    async def _ask(self, action: str, arguments: Any) -> bytes:
        async with self._session.post(f"/v3/kv/{action}", data=msgspec.json.encode(arguments)) as reply:
            body = await reply.read()
            assert reply.status == 200, body.decode(errors="replace")
            return body


def copy_of(pair: Pair, namespace: str, number: int, new_number: int) -> Pair:
    """The pod of one number as the pod of another: its own name and UID, its own job with its own name and UID."""
    assert number % PODS_PER_JOB == new_number % PODS_PER_JOB, "the same index, or names have other lengths"
    value = UID.sub(b"\x2a\x24" + str(uuid.uuid4()).encode(), pair.value, count=1)
    for part_of in (job_of, owner_uid):
        value = value.replace(part_of(number).encode(), part_of(new_number).encode())
    return Pair(f"/registry/pods/{namespace}/{key_of(namespace, new_number).name}".encode(), value)


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()
