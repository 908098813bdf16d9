"""Allocates addresses: a cluster claims a block 127.B.0.0/16; its nodes are 127.B.0.n, its pods have the rest.

Linux accepts connections on all of 127/8 without setup, so every pod has all ports to itself. The claim is an abstract
socket, which the kernel releases when its process ends, however that happens.
"""

import random
import socket
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Self

FIRST_BLOCK, LAST_BLOCK = 16, 250
NODES_PER_BLOCK = 254
PODS_PER_BLOCK = 254 * 254


class AddressesExhausted(Exception):
    """No address is free; str() is the remedy."""


class AddressBlock:
    """127.<number>.0.0/16, claimed until `release`."""

    def __init__(self, number: int, claim: socket.socket | None = None) -> None:
        self.number = number
        self._claim = claim

    @classmethod
    def claim(cls, preferred: int | None = None) -> Self:
        """Claim a free block, the preferred one if possible. Raises AddressesExhausted."""
        numbers = list(range(FIRST_BLOCK, LAST_BLOCK + 1))
        random.SystemRandom().shuffle(numbers)
        for number in [preferred, *numbers] if preferred in numbers else numbers:
            assert number is not None
            try:
                return cls(number, _bind_claim(number))
            except OSError:
                continue  # another cluster has it
        raise AddressesExhausted(
            f"all blocks from 127.{FIRST_BLOCK} to 127.{LAST_BLOCK} are claimed: stop another local cluster"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        if self._claim:
            self._claim.close()
            self._claim = None

    def node_address(self, index: int) -> str:
        """The address of the n-th node, from 1. Raises AddressesExhausted."""
        if not 1 <= index <= NODES_PER_BLOCK:
            raise AddressesExhausted(
                f"node {index} cannot have an address: 127.{self.number}.0.0/24 has only {NODES_PER_BLOCK}"
            )
        return f"127.{self.number}.0.{index}"


def _bind_claim(number: int) -> socket.socket | None:
    if sys.platform != "linux":
        return None
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0paddle-operator/127.{number}")
    except OSError:
        claim.close()
        raise
    return claim


class IPAllocator:
    """Allocates pod addresses round-robin, so that a released address is reused as late as possible."""

    def __init__(self, block: AddressBlock) -> None:
        self._block = block
        self._owners: dict[str, str] = {}  # pod UID by address
        self._next = 0

    def reserve(self, uid: str, address: str) -> bool:
        """Reserve the address that a pod already has; False if it is another pod's or outside the block."""
        if not address.startswith(f"127.{self._block.number}.") or self._owners.get(address, uid) != uid:
            return False
        self._owners[address] = uid
        return True

    def allocate(self, uid: str) -> str:
        """Raises AddressesExhausted."""
        for _ in range(PODS_PER_BLOCK):
            third, fourth = divmod(self._next, 254)
            self._next = (self._next + 1) % PODS_PER_BLOCK
            address = f"127.{self._block.number}.{third + 1}.{fourth + 1}"
            if self._owners.setdefault(address, uid) == uid:
                return address
        raise AddressesExhausted(
            f"all {PODS_PER_BLOCK} pod addresses of 127.{self._block.number} are allocated: delete some pods"
        )

    def release(self, uid: str, addresses: Iterable[str]) -> None:
        for address in addresses:
            if self._owners.get(address) == uid:
                del self._owners[address]
