"""HTTP responses, whole and in any portions."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_operator.kube.http_parser import MAX_OVERHEAD_BYTES, RemoteProtocolError, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
COUNTED = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"a": "b\\n"}'
CHUNKED = (
    OK + b"X-Odd:\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'4\r\n{"a"\r\n8;name=value\r\n: "b\\n"}\r\n0\r\nTrailer: x\r\n\r\n'
)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + COUNTED
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
EMPTY = OK + b"Content-Length: 0\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server."


def parse(*portions: bytes, tunnel: bool = False) -> ResponseParser:
    response = ResponseParser(tunnel=tunnel)
    for portion in portions:
        response.feed(portion)
    return response


def parse_chunks(chunks: bytes) -> ResponseParser:
    return parse(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)


@pytest.mark.parametrize(
    ("text", "status", "body"),
    [
        pytest.param(COUNTED, 201, b'{"a": "b\\n"}', id="counted"),
        pytest.param(CHUNKED, 200, b'{"a": "b\\n"}', id="chunked"),
        pytest.param(INTERIM, 201, b'{"a": "b\\n"}', id="interim"),
        pytest.param(NO_CONTENT, 204, b"", id="no-content"),
        pytest.param(EMPTY, 200, b"", id="empty"),
    ],
)
@given(data=st.data())
def test_portions_do_not_change_a_response(text: bytes, status: int, body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1))))
    response = parse(*(text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)))
    assert (response.status, response.take(), response.complete, response.reusable) == (status, body, True, True)


def test_body_can_be_taken_as_it_arrives() -> None:
    response = parse(CHUNKED[:-40])
    before = response.take()
    assert before
    assert response.buffered == 0
    response.feed(CHUNKED[-40:])
    assert before + response.take() == b'{"a": "b\\n"}'


def test_headers_are_found_by_lower_case_name() -> None:
    response = parse(OK + b"Content-TYPE:  text/plain \r\nX-A: 1\r\nx-a: 2\r\nX-Odd:\r\nContent-Length: 0\r\n\r\n")
    assert (response.header("content-type"), response.header("x-a"), response.header("x-odd")) == (
        "text/plain",
        "1, 2",
        "",
    )
    assert response.header("retry-after") == ""


def test_interim_head_does_not_reach_the_response() -> None:
    response = parse(INTERIM)
    assert (response.reason, response.header("link")) == ("Created", "")


def test_second_response_does_not_replace_the_headers() -> None:
    response = parse(COUNTED + INTERIM)
    assert (response.reason, response.header("content-type")) == ("Created", "application/json")


def test_transfer_encoding_may_end_with_spaces() -> None:
    response = parse(OK + b"Transfer-Encoding: chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n")
    assert (response.take(), response.reusable) == (b"{}", True)


def test_trailers_are_not_headers() -> None:
    assert parse(CHUNKED).header("trailer") == ""


def test_body_without_length_ends_with_the_connection() -> None:
    response = parse(UNTIL_CLOSED)
    assert not response.complete
    response.feed_eof()
    assert (response.complete, response.reusable) == (True, False)
    assert response.take().endswith(b"HTTPS server.")


def test_tunnel_is_complete_at_the_end_of_the_head() -> None:
    response = parse(b"HTTP/1.1 200 Connection established\r\n\r\n", tunnel=True)
    assert (response.status, response.complete, response.take()) == (200, True, b"")


def test_bytes_after_a_tunnel_head_are_no_body() -> None:
    response = parse(b"HTTP/1.1 200 Connection established\r\n\r\n\x15\x03\x01", tunnel=True)
    assert (response.complete, response.reusable, response.take()) == (True, False, b"")


def test_refused_tunnel_has_a_body() -> None:
    response = parse(b"HTTP/1.1 407 Authenticate\r\nContent-Length: 4\r\n\r\n", tunnel=True)
    assert (response.status, response.reason, response.complete) == (407, "Authenticate", False)


@pytest.mark.parametrize("text", [COUNTED[:-1], CHUNKED[:-1], COUNTED[:20], b""])
def test_truncated_response_is_an_error(text: bytes) -> None:
    response = parse(text)
    with pytest.raises(RemoteProtocolError, match="Server disconnected"):
        response.feed_eof()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", id="version-1.0"),
        pytest.param(OK + b"Connection: Close\r\nContent-Length: 2\r\n\r\n{}", id="close"),
        pytest.param(OK + b"Connection: Close\r\nContent-Length: 2\r\n\r\n{}more", id="close-and-more"),
        pytest.param(OK + b"Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n", id="second-response"),
        pytest.param(OK + b"Content-Length: 2\r\n\r\n{}" + COUNTED, id="second-whole-response"),
        pytest.param(OK + b"Content-Length: 2\r\n\r\n{}\0", id="garbage-after-it"),
    ],
)
def test_connection_is_not_reused_after(text: bytes) -> None:
    response = parse(text)
    assert (response.status, response.take(), response.complete, response.reusable) == (200, b"{}", True, False)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="ssh"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x16", id="tls"),
        pytest.param(b"HTTP/1.1 OK\r\n\r\n", id="no-status"),
        pytest.param(b"HTTP/1.xyz 200 OK\r\nContent-Length: 2\r\n\r\n{}", id="version-1.xyz"),
        pytest.param(b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", id="version-2"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", id="switching-protocols"),
        pytest.param(OK + b"Content-Length: -2\r\n\r\n", id="negative-length"),
        pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", id="two-lengths"),
        pytest.param(OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", id="length-then-chunked"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", id="chunked-then-length"),
        pytest.param(OK + b"Transfer-Encoding: gzip\r\n\r\n", id="gzip"),
        pytest.param(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", id="gzip-in-chunks"),
        pytest.param(OK + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}", id="nul"),
        pytest.param(OK + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}", id="obs-fold"),
        pytest.param(OK + b"X\r\nContent-Length: 2\r\n\r\n{}", id="header-without-colon"),
        pytest.param(OK + b"X-Long: " + b"x" * MAX_OVERHEAD_BYTES, id="endless-header"),
    ],
)
def test_invalid_head_is_refused(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="invalid HTTP response: "):
        parse(text)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(b"no size\r\n", id="no-number"),
        pytest.param(b"+5\r\nabcde\r\n", id="plus"),
        pytest.param(b"0x5\r\nabcde\r\n", id="prefix-0x"),
        pytest.param(b"1_0\r\n", id="underscore"),
        pytest.param(b"1\r\na\r\n-6\r\n", id="negative"),
        pytest.param(b"2\r\n{}}\r\n", id="longer-than-its-size"),
        pytest.param(b"1" * (MAX_OVERHEAD_BYTES + 1), id="endless-size"),
        pytest.param(b"5;" + b"x" * MAX_OVERHEAD_BYTES, id="endless-extension"),
        pytest.param(b"0\r\nX: " + b"x" * MAX_OVERHEAD_BYTES, id="endless-trailer"),
    ],
)
def test_invalid_chunk_is_refused(chunks: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="invalid HTTP response: "):
        parse_chunks(chunks)


def test_refusal_names_the_reason() -> None:
    with pytest.raises(RemoteProtocolError, match=r"^invalid HTTP response: unexpected Transfer-Encoding: gzip$"):
        parse(OK + b"Transfer-Encoding: gzip\r\n\r\n")
    with pytest.raises(RemoteProtocolError, match=r"^invalid HTTP response: Duplicate Content-Length$"):
        parse(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n")
    with pytest.raises(RemoteProtocolError, match=r"^invalid HTTP response: unexpected protocol upgrade$"):
        parse(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")


def test_complete_response_is_freed_at_once() -> None:
    """Without a reference cycle: thousands of responses a second would otherwise wait for the garbage collector."""
    gc.disable()
    try:
        response = parse(COUNTED)
        alive = weakref.ref(response)
        del response
        assert alive() is None
    finally:
        gc.enable()


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_fuzzed_bytes_raise_only_protocol_error(portions: list[bytes]) -> None:
    response = ResponseParser()
    try:
        for portion in [OK + b"Transfer-Encoding: chunked\r\n\r\n", *portions]:
            if not response.complete:
                response.feed(portion)
        if not response.complete:
            response.feed_eof()
    except RemoteProtocolError:
        pass
