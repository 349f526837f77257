"""`specchat web` with the embedded model, in Chromium."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.clients.browser import PATIENCE_SECONDS, browsing, find_browser
from tests.host.conftest import kill_host, runtime  # noqa: F401 (a fixture)

PLUGIN = Path(__file__).parents[1]
BROWSER = find_browser()
pytestmark = [pytest.mark.full, pytest.mark.skipif(BROWSER is None, reason="no Chromium here")]


def test_a_browser_shows_the_screen_and_an_answer_in_it(runtime, tmp_path, site):  # noqa: F811 (the fixture)
    serving = subprocess.Popen(
        [sys.executable, "-m", "specchat", "web"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPECCHAT_CONFIG": str(tmp_path), "PYTHONPATH": f"{site}{os.pathsep}{PLUGIN}"},
    )
    assert serving.stderr is not None
    address = re.search(r"http://\S+", serving.stderr.readline())
    assert address is not None

    async def story() -> tuple[bytes, bytes]:
        assert BROWSER is not None
        async with browsing(BROWSER, tmp_path / "browser") as page:
            await page.call("Page.navigate", url=address[0])
            await page.sees("Ask something below")
            await page.sees("ready")
            empty = await page.picture()
            await page.types("hello there, who are you\n")
            await page.sees("stop: ")
            assert "token" not in await page.value("location.href")
            return empty, await page.picture()

    try:
        empty, answered = asyncio.run(story())
    finally:
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=PATIENCE_SECONDS)
        kill_host()

    (tmp_path / "answered.png").write_bytes(answered)
    assert said.endswith("specchat web: ended\n") and "token" not in said
    assert _colours(empty) > 20 and empty != answered


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
