"""Writes pods directly to etcd: a create costs the API server 2 to 5 ms, so 100,000 of them would take too long.

The values are copies of pods that the API server stored itself; only names and UIDs are replaced, by others of the same
length.
"""

import base64
import re
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from bench.pods import PODS_PER_JOB, job_name, owner_uid, pod_key

MAX_OPERATIONS = 100  # per transaction; etcd allows 128
# Field 5 of a protobuf message, 36 bytes long; the first match is in the pod's own metadata.
UID = re.compile(rb"\x2a\x24[0-9a-f-]{36}")


class KeyValue(msgspec.Struct, frozen=True):
    key: bytes
    value: bytes


class RangeResponse(msgspec.Struct, frozen=True):
    kvs: list[KeyValue] = []
    more: bool = False


class Etcd:
    """A client of etcd's JSON gateway, where keys and values are in base64."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str) -> AsyncIterator["Etcd"]:
        async with aiohttp.ClientSession(url) as session:
            yield cls(session)

    async def pods(self, namespace: str, count: int) -> list[KeyValue]:
        """The first pods of a namespace, as the API server has stored them."""
        pods = await self.list_prefix(f"/registry/pods/{namespace}/", count)
        assert len(pods) == count, f"{len(pods)} pods instead of {count}"
        return pods

    async def list_prefix(self, prefix: str, count: int = 0) -> list[KeyValue]:
        """List the key-value pairs with a prefix that ends with a slash; `count` limits them, 0 does not."""
        arguments = {
            "key": encode_base64(prefix.encode()),
            "range_end": encode_base64(prefix[:-1].encode() + b"0"),
            "limit": count,
        }
        return msgspec.json.decode(await self._post("range", arguments), type=RangeResponse).kvs

    async def put(self, pair: KeyValue) -> None:
        await self._post("put", {"key": encode_base64(pair.key), "value": encode_base64(pair.value)})

    async def put_in_one_transaction(self, pairs: Iterable[KeyValue]) -> None:
        """Write all with one resourceVersion, which Kubernetes never does: not for pods that are being watched."""
        operations = [
            {"requestPut": {"key": encode_base64(pair.key), "value": encode_base64(pair.value)}} for pair in pairs
        ]
        await self._post("txn", {"success": operations})

    async def _post(self, action: str, arguments: Any) -> bytes:
        async with self._session.post(f"/v3/kv/{action}", data=msgspec.json.encode(arguments)) as response:
            body = await response.read()
            assert response.status == 200, body.decode(errors="replace")
            return body


def copy_pod(pair: KeyValue, namespace: str, number: int, new_number: int) -> KeyValue:
    """Copy a pod to another number: name and UID of the pod and of its job are replaced."""
    assert number % PODS_PER_JOB == new_number % PODS_PER_JOB, (
        "both must have the same index, so that their names have the same length"
    )
    value = UID.sub(b"\x2a\x24" + str(uuid.uuid4()).encode(), pair.value, count=1)
    for name_of in (job_name, owner_uid):
        value = value.replace(name_of(number).encode(), name_of(new_number).encode())
    return KeyValue(f"/registry/pods/{namespace}/{pod_key(namespace, new_number).name}".encode(), value)


def encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
