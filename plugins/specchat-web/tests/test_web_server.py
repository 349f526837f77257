"""The server of the browser front end: real sockets and processes, with a one-line program."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, CookieJar, WSServerHandshakeError, web
from hello_screen import COMMAND_FILE

from specchat.errors import UsageError
from specchat_web import server
from specchat_web.browser_access import BrowserAccess
from specchat_web.server import CONNECTION_OPTIONS, LOOPBACK, AuthenticatedServer, bind_loopback_socket

PLUGIN = str(Path(__file__).parents[1])
HELLO = (sys.executable, COMMAND_FILE)
PATIENCE_SECONDS = 120.0
PROGRAM = f"""
import sys
sys.path.append({PLUGIN!r})
from specchat_web.server import bind_loopback_socket, serve
serve(sys.argv[1:], bind_loopback_socket(0), lambda address: print(address, flush=True))
"""


@dataclass
class Visit:
    """A browser's side of it."""

    access: BrowserAccess
    client: ClientSession

    async def status(self, path: str, **headers: str) -> int:
        async with self.client.get(self.access.origin + path, headers=headers, allow_redirects=False) as answer:
            return answer.status

    async def enters(self) -> None:
        async with self.client.get(self.access.login_url) as answer:
            assert answer.status == 200 and "token" not in str(answer.url)

    async def opens_tab(self, origin: str = "") -> ClientWebSocketResponse:
        headers = {"Origin": origin or self.access.origin}
        return await self.client.ws_connect(f"{self.access.origin}/ws?width=60&height=10", headers=headers)


async def sees(tab: ClientWebSocketResponse, text: str) -> None:
    shown = b""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while text.encode() not in shown:
            message = await tab.receive()
            assert isinstance(message.data, bytes | str), f"the tab closed before {text!r} came: {shown!r}"
            shown += message.data if isinstance(message.data, bytes) else b""


@asynccontextmanager
async def served(**options: float) -> AsyncIterator[Visit]:
    listening = bind_loopback_socket(0)
    access = BrowserAccess(f"{LOOPBACK}:{listening.getsockname()[1]}")
    runner = web.AppRunner(await AuthenticatedServer(HELLO, access, "hello").application(), access_log=None, **options)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as client:
        yield Visit(access, client)
    await runner.cleanup()


def visit(story: Callable[[Visit], Awaitable[None]]) -> None:
    async def told() -> None:
        async with served() as visitor:
            await story(visitor)

    asyncio.run(told())


def test_without_a_token_every_path_is_forbidden():
    async def story(visitor: Visit) -> None:
        for path in ("/", "/static/js/textual.js", "/download/1", "/ws", "/nowhere"):
            assert await visitor.status(path) == 403

    visit(story)


def test_an_unfinished_request_is_closed_wherever_it_ends():
    """With the options of the program, and less time."""
    beginnings = ("", "GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n1")

    async def told() -> None:
        assert CONNECTION_OPTIONS.keys() == {"keepalive_timeout", "lingering_time"}
        async with served(**dict.fromkeys(CONNECTION_OPTIONS, 0.1)) as visitor:
            host = visitor.access.origin.removeprefix("http://")
            for begun in beginnings:
                reader, writer = await asyncio.open_connection(*host.split(":"))
                writer.write(begun.replace("{host}", host).encode())
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await reader.read()  # until the server closes
                writer.close()

    asyncio.run(told())


def test_the_token_works_once_and_leaves_the_address_bar():
    async def story(visitor: Visit) -> None:
        await visitor.enters()

        assert await visitor.status("/") == 200
        assert await visitor.status("/static/js/textual.js") == 200
        assert await visitor.status(f"/?token={visitor.access.token}") == 403

    visit(story)


def test_scripts_and_other_sites_cannot_read_the_cookie():
    async def story(visitor: Visit) -> None:
        async with visitor.client.get(visitor.access.login_url, allow_redirects=False) as answer:
            assert re.search("; HttpOnly; .*SameSite=Lax", answer.headers["Set-Cookie"])

    visit(story)


def test_another_host_name_is_forbidden():
    async def story(visitor: Visit) -> None:
        await visitor.enters()

        assert await visitor.status("/", Host="evil.example") == 403
        assert await visitor.status(f"/?token={visitor.access.token}", Host="evil.example") == 403

    visit(story)


def test_a_websocket_needs_the_cookie_and_the_same_origin():
    async def story(visitor: Visit) -> None:
        with pytest.raises(WSServerHandshakeError, match="403"):
            await visitor.opens_tab()
        await visitor.enters()
        for origin in ("http://127.0.0.1:1", "http://evil.example", "null"):
            with pytest.raises(WSServerHandshakeError, match="403"):
                await visitor.opens_tab(origin)

    visit(story)


def test_a_tab_shows_the_screen_and_takes_keys():
    async def story(visitor: Visit) -> None:
        await visitor.enters()
        tab = await visitor.opens_tab()
        await sees(tab, "hello from a tab")

        await tab.send_json(["stdin", "x"])

        await sees(tab, "you pressed x")
        await tab.close()

    visit(story)


def test_a_program_that_exits_closes_its_tab_and_another_can_open():
    async def story(visitor: Visit) -> None:
        await visitor.enters()
        for _ in range(2):
            tab = await visitor.opens_tab()
            await sees(tab, "hello from a tab")
            await tab.send_json(["stdin", "q"])
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not tab.closed:
                    await tab.receive()

    visit(story)


def test_a_program_that_does_not_exit_is_killed(monkeypatch):
    monkeypatch.setattr(server, "STOP_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(sys.modules[__name__], "HELLO", (sys.executable, "-c", DEAF))

    async def story(visitor: Visit) -> None:
        await visitor.enters()
        tab = await visitor.opens_tab()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (drawn := (await tab.receive()).data).isdigit():
                pass
        await tab.close()
        while _is_alive(int(drawn)):  # noqa: ASYNC110 (nobody tells of its end)
            await asyncio.sleep(0.02)

    visit(story)


DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
said = str(os.getpid()).encode()
sys.stdout.buffer.write(b"__GANGLION__\\nD" + len(said).to_bytes(4, "big") + said)
sys.stdout.flush()
time.sleep(600)
"""


def test_a_page_loads_nothing_from_other_origins():
    async def story(visitor: Visit) -> None:
        await visitor.enters()
        async with visitor.client.get(visitor.access.origin) as answer:
            assert "fonts.googleapis.com" in await answer.text()  # textual-serve would ask there
            policy = answer.headers["Content-Security-Policy"]

        assert "default-src 'none'" in policy and "style-src 'self' 'unsafe-inline';" in policy

    visit(story)


def test_it_listens_on_loopback_only():
    with bind_loopback_socket(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_line():
    with bind_loopback_socket(0) as listening:
        listening.listen()
        port = listening.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port}: .*; choose another one"):
            bind_loopback_socket(port)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_ctrl_c_ends_the_tabs_and_logs_nothing():
    serving = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *HELLO], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    address = serving.stdout.readline().strip()

    async def story() -> list[int]:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as client:
            await client.get(address)
            origin = address.partition("/?")[0]
            tab = await client.ws_connect(f"{origin}/ws?width=60&height=10", headers={"Origin": origin})
            await sees(tab, "hello from a tab")
            tabs = _children(serving.pid)
            serving.send_signal(signal.SIGINT)
            while (await tab.receive()).type.name not in {"CLOSE", "CLOSED"}:
                pass
            return tabs

    tabs = asyncio.run(story())
    said, logged = serving.communicate(timeout=PATIENCE_SECONDS)

    assert tabs and not any(_is_alive(tab) for tab in tabs)
    assert (serving.returncode, said, logged) == (0, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc who is whose child")
def test_a_program_ends_when_its_parent_is_killed():
    host = f"import subprocess, sys, time; subprocess.Popen([{sys.executable!r}, '-c', {TETHERED!r}]); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", host], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()

    until = time.monotonic() + PATIENCE_SECONDS
    while _is_alive(child):
        assert time.monotonic() < until
        time.sleep(0.05)


TETHERED = f"""
import os, runpy, sys, time
sys.path.append({PLUGIN!r})
from specchat_web import tab
runpy.run_path = lambda *_, **__: (print(os.getpid(), flush=True), time.sleep(600))
tab.POLL_SECONDS = 0.05
sys.argv = ["tab.py", "program.py"]
tab.main()
"""


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        " Z"
        not in subprocess.run(
            ["ps", "-o", "pid=,stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
    )
