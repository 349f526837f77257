"""`specchat web` with the embedded model, in Chromium."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.browser import PATIENCE_SECONDS, browsing, find_browser
from tests.host.conftest import kill_host, runtime  # noqa: F401 (a fixture)

PLUGIN = Path(__file__).parents[1]
REBOUND = "rebound.example"
BROWSER = find_browser()
pytestmark = [pytest.mark.full, pytest.mark.skipif(BROWSER is None, reason="no Chromium here")]


@contextmanager
def _serving(folder: Path, site: Path) -> Generator[tuple[str, list[str]]]:
    """The address of `specchat web`, and what it says until it has ended."""
    serving = subprocess.Popen(
        [sys.executable, "-m", "specchat", "web"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPECCHAT_CONFIG": str(folder), "PYTHONPATH": f"{site}{os.pathsep}{PLUGIN}"},
    )
    assert serving.stderr is not None
    said = list[str]()
    try:
        address = re.search(r"http://\S+", serving.stderr.readline())
        assert address is not None
        yield address[0], said
    finally:
        serving.send_signal(signal.SIGINT)
        said.append(serving.communicate(timeout=PATIENCE_SECONDS)[1])
        kill_host()


def test_a_browser_shows_the_screen_and_an_answer_in_it(runtime, tmp_path, site):  # noqa: F811 (the fixture)
    with _serving(tmp_path, site) as (address, said):

        async def story() -> tuple[bytes, bytes]:
            assert BROWSER is not None
            async with browsing(BROWSER, tmp_path / "browser") as page:
                await page.call("Page.navigate", url=address)
                await page.sees("Ask something below")
                await page.sees("ready")
                empty = await page.picture()
                await page.types("hello there, who are you\n")
                await page.sees(" tokens")
                assert "token" not in await page.value("location.href")
                return empty, await page.picture()

        empty, answered = asyncio.run(story())

    (tmp_path / "answered.png").write_bytes(answered)
    assert said[-1].endswith("specchat web: ended\n") and "token" not in said[-1]
    assert _colours(empty) > 20 and empty != answered


def test_a_name_of_others_that_leads_here_and_its_page_get_nothing(runtime, tmp_path, site):  # noqa: F811 (the fixture)
    """DNS rebinding: the address, with its token, by another name; then a socket that a foreign page opens."""
    with _serving(tmp_path, site) as (address, _said):
        foreign = address.replace("127.0.0.1", REBOUND)

        async def story() -> None:
            assert BROWSER is not None
            rule = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"
            async with browsing(BROWSER, tmp_path / "browser", rule) as page:
                await page.call("Page.navigate", url=foreign)
                await page.shows("open the address exactly as specchat printed it")
                await page.call("Page.navigate", url="data:text/html,a page of others")
                await page.shows("a page of others")
                opened = f"new WebSocket('{address.partition('?')[0].replace('http', 'ws')}ws')"
                await page.value(f"socket = {opened}; socket.onclose = () => document.body.innerText = 'refused'; 0")
                await page.shows("refused")
                assert [] == (await page.call("Network.getCookies", urls=[address, foreign]))["cookies"]
                assert "" == page.drawn

        asyncio.run(story())


def _colours(png: bytes) -> int:
    """How many different bytes a picture is made of: a page that stayed blank has a handful."""
    data = b"".join(png[at + 8 : at + 8 + size] for at, size in _chunks(png) if png[at + 4 : at + 8] == b"IDAT")
    return len(set(zlib.decompress(data)))


def _chunks(png: bytes) -> list[tuple[int, int]]:
    found, at = [], 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        found.append((at, size))
        at += size + 12
    return found
