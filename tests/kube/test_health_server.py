"""Whoever watches over the process gets true answers, in the words that dashboards know."""

import asyncio
import os
import re
import ssl
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pytest
import trustme

from paddle_operator.kube import metrics
from paddle_operator.kube.health_server import Address, Check, MetricsAuth, _parse_address, serve

LOOPBACK = "127.0.0.1:0"


def nothing() -> Iterable[str]:
    return ()


async def answer(address: Address, path: str) -> tuple[int, str]:
    host, port = address[:2]
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as reply:
        return reply.status, await reply.text()


async def test_probes_say_ok_while_nobody_complains() -> None:
    async with serve(LOOPBACK, "0", nothing, nothing) as [address]:
        assert await answer(address, "/healthz") == (200, "ok\n")
        assert await answer(address, "/readyz") == (200, "ok\n")
        assert (await answer(address, "/metrics"))[0] == 404


async def test_probe_fails_while_its_check_reports_problems() -> None:
    complaints = ["the cache of pods is not filled", "stopping"]
    ready: Check = lambda: iter(complaints)  # noqa: E731  # a probe may be a generator, as the manager's are
    async with serve(LOOPBACK, "0", nothing, ready) as [address]:
        assert await answer(address, "/readyz") == (503, "the cache of pods is not filled\nstopping\n")
        assert await answer(address, "/healthz") == (200, "ok\n")
        complaints.clear()
        assert await answer(address, "/readyz") == (200, "ok\n")
    async with serve(LOOPBACK, "0", lambda: ["stuck"], nothing) as [address]:
        assert await answer(address, "/healthz") == (503, "stuck\n")


CONTROLLER_RUNTIME_NAMES = {
    "controller_runtime_active_workers",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds_bucket",
    "controller_runtime_reconcile_total",
    "leader_election_master_status",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "rest_client_requests_total",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds_bucket",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds_bucket",
}


async def test_the_figures_have_controller_runtimes_names() -> None:
    metrics.QueueMetrics("paddlejob", unfinished=lambda: 0.0, longest=lambda: 0.0)
    metrics.ControllerMetrics("paddlejob", workers=4)
    metrics.leader_gauge("paddle-operator")
    metrics.count_request(200, "GET", "api.example:6443")
    async with serve("0", LOOPBACK, nothing, nothing) as [address]:
        code, text = await answer(address, "/metrics")
        assert code == 200
        assert (await answer(address, "/healthz"))[0] == 404
    samples = set(re.findall(r"^([a-z_]+)[{ ]", text, re.MULTILINE))
    assert samples >= CONTROLLER_RUNTIME_NAMES
    assert 'workqueue_depth{controller="paddlejob",name="paddlejob"} 0.0' in text
    assert 'controller_runtime_max_concurrent_reconciles{controller="paddlejob"} 4.0' in text


async def test_probes_and_figures_have_an_address_each() -> None:
    async with serve(LOOPBACK, LOOPBACK, nothing, nothing) as [probes, figures]:
        assert probes != figures
        assert (await answer(probes, "/healthz"))[0] == (await answer(figures, "/metrics"))[0] == 200


@pytest.mark.parametrize("address", ["0", ""])
async def test_an_address_of_0_serves_nothing(address: str) -> None:
    async with serve(address, address, nothing, nothing) as addresses:
        assert addresses == []


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [(":8080", None, 8080), (":0", None, 0), ("localhost:1", "localhost", 1), ("[::1]:65535", "::1", 65535)],
)
def test_an_address_is_a_host_and_a_port_or_a_port_alone(address: str, host: str | None, port: int) -> None:
    assert _parse_address(address) == (host, port)  # not served: a test listens on loopback only


@pytest.mark.parametrize("address", ["8080", "localhost", "localhost:", "localhost:http", ":65536", ":-1", ":²", ":"])
async def test_what_is_no_address_is_one_sentence(address: str) -> None:
    with pytest.raises(ValueError) as told:
        async with serve(LOOPBACK, address, nothing, nothing):
            pass
    assert str(told.value) == (
        f'the address "{address}" has no port from 0 to 65535: write host:port, :port, or 0 to serve nothing'
    )


async def test_taken_port_is_reported_and_the_other_released() -> None:
    async with serve(LOOPBACK, "0", nothing, nothing) as [free]:
        pass
    async with serve(LOOPBACK, "0", nothing, nothing) as [taken]:
        with pytest.raises(OSError) as told:
            async with serve(f"127.0.0.1:{free[1]}", f"127.0.0.1:{taken[1]}", nothing, nothing):
                pass
        assert str(told.value) == (
            f"cannot listen on 127.0.0.1:{taken[1]}: Address already in use; choose another address"
        )
        assert told.value.__cause__ is None
    async with serve(f"127.0.0.1:{free[1]}", "0", nothing, nothing) as addresses:
        assert addresses == [free]


def write_certificate(folder: Path, authority: trustme.CA) -> MetricsAuth:
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    return MetricsAuth(folder / "certificate.pem", folder / "key.pem")


async def test_metrics_over_tls_use_the_newest_certificate(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    protection = write_certificate(tmp_path, old)

    async def seen_by(authority: trustme.CA, port: int) -> int:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        url = f"https://127.0.0.1:{port}/metrics"
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as reply:
            return reply.status

    async with serve("0", LOOPBACK, nothing, nothing, protection) as [address]:
        assert await seen_by(old, address[1]) == 200
        write_certificate(tmp_path, new)
        os.utime(tmp_path / "certificate.pem", (1, 1))  # another time, however coarse the file system's clock is
        assert await seen_by(new, address[1]) == 200  # and trusts no other
        (tmp_path / "certificate.pem").write_text("half of a")
        os.utime(tmp_path / "certificate.pem", (2, 2))
        assert await seen_by(new, address[1]) == 200  # what cannot be read changes nothing


async def test_metrics_need_the_current_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    async def asked(address: Address, **headers: str) -> int:
        url = f"http://127.0.0.1:{address[1]}/metrics"
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as reply:
            return reply.status

    async with serve("0", LOOPBACK, nothing, nothing, MetricsAuth(token=token)) as [address]:
        assert await asked(address) == 401
        assert await asked(address, Authorization="Bearer wrong") == 401
        assert await asked(address, Authorization="Bearer first") == 200
        token.write_text("second\n")
        assert await asked(address, Authorization="Bearer first") == 401
        assert await asked(address, Authorization="Bearer second") == 200


async def test_a_token_of_any_bytes_is_a_wrong_one_and_no_defect(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("right")
    async with serve("0", LOOPBACK, nothing, nothing, MetricsAuth(token=tmp_path / "token")) as [address]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: operator\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (MetricsAuth(Path("certificate.pem"), Path("missing.pem")), "missing.pem"),
        (MetricsAuth(Path("certificate.pem"), Path("anothers.pem")), "anothers.pem"),
        (MetricsAuth(Path("missing.pem")), "missing.pem"),
        (MetricsAuth(token=Path("missing")), "missing"),
    ],
)
async def test_unusable_file_is_named_at_start(
    wrong: MetricsAuth, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_certificate(tmp_path, trustme.CA())
    trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path("anothers.pem")
    with pytest.raises(OSError, match=named):
        async with serve("0", LOOPBACK, nothing, nothing, wrong):
            pass
