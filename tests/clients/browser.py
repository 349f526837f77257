"""A headless Chromium, driven over its debugging port: it opens an address, types, and takes pictures."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--window-size=1100,700")
PATIENCE_SECONDS = 120.0
A_MOMENT = "new Promise(resolve => setTimeout(resolve, 100))"
FRAME = "Network.webSocketFrameReceived"


def find_browser() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Page:
    """One page of it; `drawn` is everything that reached its terminal so far."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.drawn = ""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The browser's answer to a command of its protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while (message := await self._socket.receive_json()).get("id") != number:
            self._hear(message)
        return message["result"]

    async def sees(self, text: str) -> None:
        """Wait until a text was drawn."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self.drawn:
                self._hear(await self._socket.receive_json())

    async def shows(self, text: str, expression: str = "document.body && document.body.innerText") -> None:
        """Wait until a part of the page has a text."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in (await self.value(expression) or ""):
                await self.call("Runtime.evaluate", expression=A_MOMENT, awaitPromise=True)

    async def types(self, text: str) -> None:
        """Key by key, into the terminal; a newline is Enter."""
        await self.value("document.querySelector('.xterm-helper-textarea').focus()")
        for character in text:
            key = (
                {"key": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
                if character == "\n"
                else {"text": character}
            )
            await self.call("Input.dispatchKeyEvent", type="keyDown", **key)
            await self.call("Input.dispatchKeyEvent", type="keyUp")

    async def picture(self) -> bytes:
        """What is to be seen, as PNG."""
        shot = await self.call("Page.captureScreenshot")
        return base64.b64decode(shot["data"])

    async def value(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression)
        return answer["result"].get("value")

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("method") == FRAME and message["params"]["response"]["opcode"] == 2:
            self.drawn += base64.b64decode(message["params"]["response"]["payloadData"]).decode(errors="replace")


@asynccontextmanager
async def browsing(program: str, folder: Path, *flags: str) -> AsyncIterator[Page]:
    """A browser with a profile of its own; it and all its processes end with this."""
    command = [program, *FLAGS, *flags, f"--user-data-dir={folder}", "about:blank"]
    running = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL, start_new_session=True)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), ClientSession() as client:
            port = await _port(folder / "DevToolsActivePort")
            async with client.get(f"http://127.0.0.1:{port}/json") as answer:
                tab = next(each for each in await answer.json() if each["type"] == "page")
            async with client.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                await page.call("Network.enable")
                yield page
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        await running.wait()


async def _port(written: Path) -> str:
    while not (lines := _lines(written)):  # noqa: ASYNC110 (another process writes it)
        await asyncio.sleep(0.05)
    return lines[0]


def _lines(written: Path) -> list[str]:
    """Both lines of the file in which the browser says where it listens; none while it is not whole."""
    lines = written.read_text().splitlines() if written.exists() else []
    return lines if len(lines) == 2 else []
