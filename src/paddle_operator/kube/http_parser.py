"""What has a server said so far? HTTP/1.1 as bytes in any portions, to a status, headers and the parts of a body.

No I/O: whoever holds the connection feeds it. RFC 9112, sections 4 to 7, as far as a client of an API server needs it.
"""

from collections.abc import Callable

LARGEST_HEAD = 64 * 1024


class RemoteProtocolError(Exception):
    """These bytes are no HTTP, or they end too early."""


class ResponseParser:
    """Grows as it is fed; `ended` when the last byte of it is here."""

    def __init__(self, *, tunnel: bool = False) -> None:
        """With `tunnel` it is a proxy's answer to CONNECT, after which the bytes are somebody else's."""
        self.status = 0  # no head yet
        self.reason = ""
        self._top = ""  # the lines of the head
        self._top_in_small = ""
        self.ended = False
        self.waiting = 0  # bytes of the body that nobody has taken
        self._tunnel = tunnel
        self._parts: list[bytes] = []
        self._rest = b""  # what cannot be understood before more of it is here
        self._left = 0  # bytes of the body, or of the present chunk, that are still to come
        self._goes_on = False  # whether the connection may carry another answer
        self._read: Callable[[bytes, int], int] = self._head

    @property
    def reusable(self) -> bool:
        """Whether the connection can be asked again; one that said more than it was asked for cannot be trusted."""
        return self.ended and self._goes_on and not self._rest

    def take(self) -> bytes:
        """The body as far as it is here and was not taken before."""
        taken = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.waiting = 0
        return taken

    def header(self, name: str) -> str:
        """The value of a header, by its name in small letters. Looked for when asked: of a dozen, few ever are."""
        begin = self._top_in_small.find(f"\r\n{name}:")
        if begin < 0:
            return ""
        begin += len(name) + 3
        end = self._top.find("\r\n", begin)
        return self._top[begin : end if end >= 0 else None].strip()

    def feed(self, data: bytes) -> None:
        """Raises RemoteProtocolError."""
        data = self._rest + data if self._rest else data
        at = 0
        while not self.ended:
            next_at = self._read(data, at)
            if next_at < 0:
                break
            at = next_at
        self._rest = data[at:]

    def close(self) -> None:
        """The server has closed the connection, which ends a body of no announced length. Raises RemoteProtocolError."""
        if self._read == self._until_closed:
            self.ended = True
        if not self.ended:
            raise RemoteProtocolError("Server disconnected")

    # Each reads what comes next at a place and says where the rest begins, or -1 where that is not all here.

    def _head(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n\r\n", at)
        if end < 0:
            if len(data) - at > LARGEST_HEAD or not _may_be_http(data[at : at + 7]):
                raise RemoteProtocolError("the answer is no HTTP")
            return -1
        top = data[at:end].decode("latin-1")
        first, _, _ = top.partition("\r\n")
        version, _, said = first.partition(" ")
        code, _, reason = said.partition(" ")
        if not version.startswith("HTTP/1.") or len(code) != 3 or not code.isdecimal():
            raise RemoteProtocolError("the answer is no HTTP")
        if code.startswith("1"):
            return end + 4  # the answer itself is still to come
        self._top, self._top_in_small = top, top.lower()
        self._goes_on = version != "HTTP/1.0" and "close" not in self.header("connection").lower()
        self._read = self._frame(int(code))
        self.status, self.reason = int(code), reason
        return end + 4

    def _frame(self, status: int) -> Callable[[bytes, int], int]:
        coding, length = self.header("transfer-encoding"), self.header("content-length")
        if status in (204, 304) or (self._tunnel and status < 300):
            self.ended = True
        elif coding:
            if coding.lower() != "chunked":
                raise RemoteProtocolError(f"the answer comes as {coding}, which nobody asked for")
            return self._chunk_size
        elif length:
            if not length.isdecimal():
                raise RemoteProtocolError(f"the answer is {length} bytes long")
            self._left = int(length)
            self.ended = not self._left
        else:
            self._goes_on = False
            return self._until_closed
        return self._counted

    def _counted(self, data: bytes, at: int) -> int:
        at = self._part(data, at)
        self.ended = not self._left
        return at

    def _chunk_size(self, data: bytes, at: int) -> int:
        end = self._end_of_line(data, at)
        if end < 0:
            return -1
        try:
            size = int(data[at:end].partition(b";")[0], 16)
        except ValueError:
            raise RemoteProtocolError("a chunk of the answer has no size") from None
        if size < 0:
            raise RemoteProtocolError("a chunk of the answer has no size")
        begin, stop = end + 2, end + 2 + size
        if size and data[stop : stop + 2] == b"\r\n":  # all of it is here, as nearly always in a watch
            self._parts.append(data[begin:stop])
            self.waiting += size
            return stop + 2
        self._left = size
        self._read = self._chunk if size else self._trailer
        return begin

    def _chunk(self, data: bytes, at: int) -> int:
        at = self._part(data, at)
        if not self._left:
            self._read = self._chunk_end
        return at

    def _chunk_end(self, data: bytes, at: int) -> int:
        if len(data) < at + 2:
            return -1
        if data[at : at + 2] != b"\r\n":
            raise RemoteProtocolError("a chunk of the answer is longer than it says")
        self._read = self._chunk_size
        return at + 2

    def _trailer(self, data: bytes, at: int) -> int:
        end = self._end_of_line(data, at)
        self.ended = end == at
        return end + 2 if end >= 0 else -1

    def _until_closed(self, data: bytes, at: int) -> int:
        self._left = len(data) - at
        return self._part(data, at)

    def _part(self, data: bytes, at: int) -> int:
        """Keep what is here of what is left."""
        part = data[at : at + self._left]
        if not part:
            return -1
        self._parts.append(part)
        self.waiting += len(part)
        self._left -= len(part)
        return at + len(part)

    @staticmethod
    def _end_of_line(data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        if end < 0 and len(data) - at > LARGEST_HEAD:
            raise RemoteProtocolError("a line of the answer does not end")
        return end


def _may_be_http(beginning: bytes) -> bool:
    return b"HTTP/1.".startswith(beginning)
