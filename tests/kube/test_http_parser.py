"""HTTP answers, in whatever portions they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_operator.kube.http_parser import LARGEST_HEAD, RemoteProtocolError, ResponseParser

COUNTED = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"a": "b\\n"}'
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Odd:\r\n\r\n"
    b'4\r\n{"a"\r\n8;name=value\r\n: "b\\n"}\r\n0\r\nTrailer: x\r\n\r\n'
)
INFORMED = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + COUNTED
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
NOTHING = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
OPEN_ENDED = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server."


def fed(*portions: bytes) -> ResponseParser:
    answer = ResponseParser()
    for portion in portions:
        answer.feed(portion)
    return answer


@pytest.mark.parametrize(
    ("text", "status", "body"),
    [
        (COUNTED, 201, b'{"a": "b\\n"}'),
        (CHUNKED, 200, b'{"a": "b\\n"}'),
        (INFORMED, 201, b'{"a": "b\\n"}'),
        (EMPTY, 204, b""),
        (NOTHING, 200, b""),
    ],
)
@given(data=st.data())
def test_an_answer_is_the_same_in_any_portions(text: bytes, status: int, body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1))))
    answer = fed(*(text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)))
    assert (answer.status, answer.take(), answer.ended, answer.reusable) == (status, body, True, True)


def test_the_body_can_be_taken_as_it_comes() -> None:
    answer = fed(CHUNKED[:-40])
    before = answer.take()
    assert before
    assert answer.waiting == 0
    answer.feed(CHUNKED[-40:])
    assert before + answer.take() == b'{"a": "b\\n"}'


def test_a_body_of_no_announced_length_ends_with_the_connection() -> None:
    answer = fed(OPEN_ENDED)
    assert not answer.ended
    answer.close()
    assert (answer.ended, answer.reusable) == (True, False)
    assert answer.take().endswith(b"HTTPS server.")


@pytest.mark.parametrize("text", [COUNTED[:-1], CHUNKED[:-1], COUNTED[:20], b""])
def test_an_answer_that_ends_too_early_is_told(text: bytes) -> None:
    answer = fed(text)
    with pytest.raises(RemoteProtocolError, match="Server disconnected"):
        answer.close()


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n",  # more than was asked for
    ],
)
def test_a_connection_that_ends_or_says_too_much_is_not_used_again(text: bytes) -> None:
    answer = fed(text)
    assert (answer.take(), answer.ended, answer.reusable) == (b"{}", True, False)


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n-6\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * (LARGEST_HEAD + 1),
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * LARGEST_HEAD,
    ],
)
def test_what_is_no_http_is_told_and_not_waited_for(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        fed(text)


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_at_all_do_more_than_be_refused(portions: list[bytes]) -> None:
    answer = ResponseParser()
    try:
        for portion in [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *portions]:
            if not answer.ended:
                answer.feed(portion)
        answer.close()
    except RemoteProtocolError:
        pass
