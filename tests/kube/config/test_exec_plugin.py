import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddle_operator.kube.config.credentials import Credentials, Secret
from paddle_operator.kube.config.exec_plugin import ExecPlugin
from paddle_operator.kube.config.kubeconfig import read
from paddle_operator.kube.errors import Misconfigured
from testbed.clock import FakeClock
from tests.support.kubeconfigs import TOKEN, count_runs, make_exec_user, write_kubeconfig, write_plugin

Build = Callable[..., ExecPlugin]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def build(tmp_path: Path, clock: FakeClock) -> Build:
    """A plugin as a kubeconfig describes it."""

    def built(
        command: Path | str,
        *,
        cluster_info: Callable[[], Mapping[str, object]] = dict,
        terminal: bool = False,
        path: str = os.environ["PATH"],
        **fields: Any,
    ) -> ExecPlugin:
        file = write_kubeconfig(tmp_path / "config", user=make_exec_user(command, **fields))
        settings = read(file, {}).choose().user.value.exec
        assert settings is not None
        environ = {"PATH": path, "OUTER": "outer"}
        return ExecPlugin(settings, 'user "me"', clock, environ, cluster_info, lambda: terminal)

    return built


async def refusal_of(plugin: ExecPlugin) -> str:
    with pytest.raises(Misconfigured) as raised:
        await plugin.credentials()
    assert raised.value.__cause__ is None
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert TOKEN not in sentence
    return sentence


async def until(condition: Callable[[], bool]) -> None:
    """For what a process of its own does: no clock of ours moves it."""
    while not condition():
        await asyncio.sleep(0.01)


async def test_a_token_is_kept_as_long_as_nobody_refuses_it(tmp_path: Path, build: Build, clock: FakeClock) -> None:
    program = write_plugin(tmp_path / "login", "answer(token=f'token {run}')")
    plugin = build(program)
    assert await plugin.credentials() == Credentials(Secret("token 1"))
    await clock.advance(100_000)
    assert await plugin.credentials() is await plugin.credentials()
    assert count_runs(program) == 1


async def test_plugin_gets_arguments_variables_and_cluster(tmp_path: Path, build: Build) -> None:
    program = write_plugin(
        tmp_path / "login",
        "answer(token=json.dumps([sys.argv[1:], os.environ['OUTER'], os.environ['OWN'], asked, sys.stdin.read()]))",
    )
    for version in ("v1", "v1beta1"):
        plugin = build(
            program,
            apiVersion=f"client.authentication.k8s.io/{version}",
            args=["--for", "me"],
            env=[{"name": "OWN", "value": "own"}],
            provideClusterInfo=True,
            cluster_info=lambda: {"server": "https://there:6443"},
        )
        token = (await plugin.credentials()).token
        assert token
        arguments, outer, own, asked, stdin = msgspec.json.decode(token.reveal())
        assert (arguments, outer, own, stdin) == (["--for", "me"], "outer", "own", "")
        assert asked == {
            "kind": "ExecCredential",
            "apiVersion": f"client.authentication.k8s.io/{version}",
            "spec": {"interactive": False, "cluster": {"server": "https://there:6443"}},
        }


async def test_the_cluster_is_told_only_to_a_program_that_asks(tmp_path: Path, build: Build) -> None:
    program = write_plugin(tmp_path / "login", "answer(token=' '.join(asked['spec']))")
    plugin = build(program, cluster_info=lambda: {"server": "https://there:6443"})
    assert await plugin.credentials() == Credentials(Secret("interactive"))


async def test_a_bare_command_is_found_in_the_path(tmp_path: Path, build: Build) -> None:
    write_plugin(tmp_path / "login", "answer(token='found')")
    plugin = build("login", path=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert await plugin.credentials() == Credentials(Secret("found"))


async def test_a_certificate_comes_with_its_key(tmp_path: Path, build: Build) -> None:
    program = write_plugin(
        tmp_path / "login", "answer(clientCertificateData='the certificate', clientKeyData='the key')"
    )
    credentials = await build(program).credentials()
    assert credentials.token is None
    assert credentials.pair is not None
    assert (credentials.pair.certificate.reveal(), credentials.pair.key.reveal()) == ("the certificate", "the key")
    assert str(program) in credentials.pair.origin


async def test_plugin_reruns_shortly_before_expiry(tmp_path: Path, build: Build, clock: FakeClock) -> None:
    program = write_plugin(
        tmp_path / "login",
        "answer(token=f'token {run}', expirationTimestamp=f'2026-01-01T0{run}:00:00Z')",  # the clock starts at 00:00
    )
    plugin = build(program)
    await plugin.credentials()
    await clock.advance(3600 - 11)
    assert await plugin.credentials() == Credentials(Secret("token 1"))
    await clock.advance(1)
    assert await plugin.credentials() == Credentials(Secret("token 2"))
    clock.step_wall_clock(3600)  # somebody corrects the wall clock, the one that an expiry is written in
    await clock.advance(1)
    assert await plugin.credentials() == Credentials(Secret("token 3"))
    assert count_runs(program) == 3


async def test_expired_credential_does_not_rerun_plugin_in_a_loop(
    tmp_path: Path, build: Build, clock: FakeClock
) -> None:
    program = write_plugin(tmp_path / "login", "answer(token='old', expirationTimestamp='2025-01-01T00:00:00Z')")
    plugin = build(program)
    for _ in range(5):
        await plugin.credentials()
    assert count_runs(program) == 1
    await clock.advance(1)
    await plugin.credentials()
    assert count_runs(program) == 2


async def test_many_requests_share_one_run(tmp_path: Path, build: Build) -> None:
    program = write_plugin(tmp_path / "login", "time.sleep(0.05); answer(token=f'token {run}')")
    plugin = build(program)
    proofs = await asyncio.gather(*(plugin.credentials() for _ in range(20)))
    assert {id(credentials) for credentials in proofs} == {id(proofs[0])}
    assert count_runs(program) == 1


async def test_concurrent_requests_share_one_plugin_failure(tmp_path: Path, build: Build, clock: FakeClock) -> None:
    program = write_plugin(tmp_path / "login", "if run == 1: sys.exit('no network')\nanswer(token='at last')")
    plugin = build(program)
    results = await asyncio.gather(*(plugin.credentials() for _ in range(20)), return_exceptions=True)
    assert all(isinstance(result, Misconfigured) for result in results)
    assert count_runs(program) == 1
    await clock.advance(1)
    assert await plugin.credentials() == Credentials(Secret("at last"))


async def test_refused_credential_is_dropped_once(tmp_path: Path, build: Build) -> None:
    program = write_plugin(tmp_path / "login", "answer(token=f'token {run}')")
    plugin = build(program)
    refused = await plugin.credentials()

    async def another_try() -> Credentials:
        assert await plugin.renew(refused)
        return await plugin.credentials()

    assert await asyncio.gather(*(another_try() for _ in range(10))) == [Credentials(Secret("token 2"))] * 10
    assert count_runs(program) == 2
    assert await plugin.renew(None)
    assert await plugin.credentials() == Credentials(Secret("token 3"))


async def test_cancelled_waiter_kills_its_plugin(tmp_path: Path, build: Build) -> None:
    program = write_plugin(tmp_path / "login", "if run == 1: time.sleep(600)\nanswer(token=f'token {run}')")
    plugin = build(program)
    first = asyncio.create_task(plugin.credentials())
    await until(lambda: count_runs(program) == 1)
    second = asyncio.create_task(plugin.credentials())
    first.cancel()
    assert await second == Credentials(Secret("token 2"))
    assert first.cancelled()


async def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path, build: Build, clock: FakeClock) -> None:
    program = write_plugin(
        tmp_path / "login",
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"with open({str(tmp_path / 'pids')!r}, 'w') as file: file.write(f'{{os.getpid()}} {{child.pid}}.')\n"
        "child.wait()",
    )
    pids = tmp_path / "pids"
    error_of_status = asyncio.create_task(refusal_of(build(program)))
    await until(lambda: pids.exists() and pids.read_text().endswith("."))
    await clock.advance(59)
    assert not error_of_status.done()
    await clock.advance(1)
    assert (await error_of_status).endswith(
        "was killed, since it had not finished after 60 s: run it by hand to see why"
    )
    for pid in pids.read_text().rstrip(".").split():
        await until(lambda pid=pid: not alive(int(pid)))  # type: ignore[misc]
    assert clock.pending == 0


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_helper_that_a_program_leaves_behind_holds_nobody_up(tmp_path: Path, build: Build) -> None:
    program = write_plugin(
        tmp_path / "login",
        "helper = subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\nanswer(token=str(helper.pid))",
    )
    token = (await build(program).credentials()).token
    assert token
    assert alive(int(token.reveal()))
    os.kill(int(token.reveal()), signal.SIGKILL)


async def test_a_missing_program_is_told_with_the_hint_of_its_maker(build: Build) -> None:
    sentence = await refusal_of(build("no-such-login", installHint="Install it:\n  brew install no-such-login\n"))
    assert sentence == (
        'the exec plugin "no-such-login" of user "me" was not found: Install it: brew install no-such-login'
    )
    sentence = await refusal_of(build("no-such-login"))
    assert sentence.endswith("was not found: install it, or correct the command in the kubeconfig")


async def test_a_program_that_cannot_be_started_is_told(tmp_path: Path, build: Build) -> None:
    program = tmp_path / "login"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o700)
    assert "cannot be started (No such file or directory): install it" in await refusal_of(build(program))


async def test_plugin_failure_shows_stderr_without_secrets(tmp_path: Path, build: Build) -> None:
    jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"
    base64 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC/BKcwggSjAgEAAoIBAQ"
    program = write_plugin(
        tmp_path / "login",
        f"print('{TOKEN}')\n"
        f"sys.exit('''traceback\\nlong ago\\nsent Authorization: Bearer abc and token={TOKEN} and {jwt}\\n"
        f"got {base64} from https://login.example.com/Tenant1/oauth2\\n"
        "the session \"dev\" has expired: open OWN_VALUE''')",
    )
    sentence = await refusal_of(build(program, env=[{"name": "MY_SECRET", "value": "OWN_VALUE"}]))
    assert sentence.endswith(
        " exited 1: sent Authorization: … and … and … / got … from https://login.example.com/Tenant1/oauth2"
        ' / the session "dev" has expired: open …; log in again, or run it by hand'
    )


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (f"print('{TOKEN}')", "printed 13 bytes that are not JSON: run it by hand to see them"),
        ("", "printed 0 bytes that are not JSON"),
        (r"sys.stdout.buffer.write(b'\xff\xfe')", "bytes that are not JSON"),
        (
            f"print('[\"{TOKEN}\"]')",
            "printed an invalid ExecCredential: Expected `object`, got `array`; update the plugin",
        ),
        ("answer(token=5)", "printed an invalid ExecCredential: Expected `str`, got `int` - at `$.status.token`"),
        (f"answer(token='{TOKEN}', expirationTimestamp='soon')", "Invalid RFC3339 encoded datetime"),
        (f"answer(token='{TOKEN}', expirationTimestamp='2026-01-01T00:00:00')", "timezone"),
        ("print('{}')", 'printed the kind "", not ExecCredential: update it'),
        (
            "asked['apiVersion'] = 'v9'; answer(token='x')",
            'printed apiVersion "v9" instead of client.authentication.k8s.io/v1',
        ),
        ("answer()", "printed neither a token nor a certificate: log in again"),
        (f"answer(clientKeyData='{TOKEN}')", "printed only one of certificate and key: update the plugin"),
        (f"while True: print('{TOKEN}' * 999)", "does not stop printing: run it by hand to see what it prints"),
        ("sys.exit(3)", "exited 3: run it by hand to see why"),
    ],
)
async def test_rubbish_is_one_sentence(tmp_path: Path, build: Build, body: str, sentence: str) -> None:
    assert sentence in await refusal_of(build(write_plugin(tmp_path / "login", body)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"command": ""}, 'the exec section of user "me" has no command: name the program to run'),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1beta1 are supported: update the plugin"),
        ({"apiVersion": ""}, 'has the apiVersion "", but only'),
        (
            {"interactiveMode": ""},
            "has no interactiveMode, which client.authentication.k8s.io/v1 requires: add IfAvailable",
        ),
        ({"interactiveMode": "Maybe"}, 'has the interactiveMode "Maybe": use one of Never, IfAvailable, Always'),
    ],
)
def test_settings_that_cannot_work_are_refused_before_any_run(
    build: Build, fields: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Misconfigured) as raised:
        build(fields.pop("command", "login"), **fields)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("mode", "terminal", "expected"),
    [
        ("Never", True, "False"),
        ("IfAvailable", True, "True"),
        ("IfAvailable", False, "False"),
        ("Always", True, "True"),
    ],
)
async def test_a_program_is_told_whether_it_may_ask_a_person(
    tmp_path: Path, build: Build, mode: str, terminal: bool, expected: str
) -> None:
    program = write_plugin(tmp_path / "login", "answer(token=str(asked['spec']['interactive']))")
    assert await build(program, interactiveMode=mode, terminal=terminal).credentials() == Credentials(Secret(expected))


async def test_interactive_plugin_needs_a_terminal(tmp_path: Path, build: Build) -> None:
    program = write_plugin(tmp_path / "login", "answer(token='x')")
    assert "there is no terminal" in await refusal_of(build(program, interactiveMode="Always"))
    assert count_runs(program) == 0
