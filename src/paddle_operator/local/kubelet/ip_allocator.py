"""Who has which address? A cluster claims a block 127.B.0.0/16: its nodes are 127.B.0.n, its pods the rest.

Linux answers on all of 127/8 without any set-up, so that every pod has all ports to itself. The claim is an abstract
socket, which the kernel takes back when its owner dies, however that happens.
"""

import random
import socket
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Self

FIRST_BLOCK, LAST_BLOCK = 16, 250


class NoAddress(Exception):
    """All are taken; str() is a sentence."""


class Block:
    """127.<number>.0.0/16, held until `release`."""

    def __init__(self, number: int, claim: socket.socket | None = None) -> None:
        self.number = number
        self._claim = claim

    @classmethod
    def claim(cls, preferred: int | None = None) -> Self:
        """A block of one's own, the preferred one if it is free. Raises NoAddress."""
        numbers = list(range(FIRST_BLOCK, LAST_BLOCK + 1))
        random.SystemRandom().shuffle(numbers)
        for number in [preferred, *numbers] if preferred in numbers else numbers:
            assert number is not None
            try:
                return cls(number, _claimed(number))
            except OSError:
                continue  # another cluster has it
        raise NoAddress(f"all blocks from 127.{FIRST_BLOCK} to 127.{LAST_BLOCK} are claimed: end another local cluster")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        if self._claim:
            self._claim.close()
            self._claim = None

    def node(self, index: int) -> str:
        """Of the n-th node, from 1. Raises NoAddress."""
        if not 1 <= index <= 254:
            raise NoAddress(f"node {index} cannot have an address: 127.{self.number}.0 has room for 254")
        return f"127.{self.number}.0.{index}"


def _claimed(number: int) -> socket.socket | None:
    if sys.platform != "linux":
        return None
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0paddle-operator/127.{number}")
    except OSError:
        claim.close()
        raise
    return claim


class PodAddresses:
    """Gives addresses one after the other, so that a freed one rests before it is another pod's."""

    MOST = 254 * 254

    def __init__(self, block: Block) -> None:
        self._block = block
        self._taken: dict[str, str] = {}  # by address: the pod's UID
        self._next = 0

    def keep(self, uid: str, address: str) -> bool:
        """Let a pod keep the address that it has; says whether it may."""
        if not address.startswith(f"127.{self._block.number}.") or self._taken.get(address, uid) != uid:
            return False
        self._taken[address] = uid
        return True

    def take(self, uid: str) -> str:
        """Raises NoAddress."""
        for _ in range(self.MOST):
            third, fourth = divmod(self._next, 254)
            self._next = (self._next + 1) % self.MOST
            address = f"127.{self._block.number}.{third + 1}.{fourth + 1}"
            if self._taken.setdefault(address, uid) == uid:
                return address
        raise NoAddress(f"all {self.MOST} pod addresses of 127.{self._block.number} are taken: delete some pods")

    def give_back(self, uid: str, addresses: Iterable[str]) -> None:
        for address in addresses:
            if self._taken.get(address) == uid:
                del self._taken[address]
