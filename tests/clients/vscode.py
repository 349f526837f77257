"""VS Code: the packed extension in code-server, which is VS Code without a window; its screen is a headless browser.

It rewrites a file by the command palette, and undoes that with Ctrl+Z.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.browser import Page, browsing, find_browser
from tests.clients.world import AREA, PATIENCE_SECONDS, NotAvailable, Step, World, until

INSTRUCTION = "rename width to breadth"
SETTINGS = {
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
    "files.autoSave": "afterDelay",
    "files.autoSaveDelay": 200,
}
CONTROL, ENTER, F1, Z = 2, 13, 112, 90
FIRST_FILE = "document.querySelector('.explorer-folders-view .monaco-list-row .monaco-icon-label')"
EDITOR = "document.querySelector('.monaco-editor textarea, .monaco-editor .native-edit-context')"
PROMPT = "document.querySelector('.quick-input-widget')?.innerText.includes('Rewrite: instruction')"
FIRST_COMMAND = "document.querySelector('.quick-input-list .monaco-list-row')"
PALETTE = f"{FIRST_COMMAND}?.innerText.includes('specchat: rewrite the selection')"
SETTLING_SECONDS = 1.0  # after each key: the workbench draws in the background


def vs_code(world: World) -> Iterator[Step]:
    """The packed extension: the command from the palette, and undo."""
    program, browser = world.program("code-server"), find_browser()
    if browser is None:
        raise NotAvailable("no headless Chromium")
    file = world.fresh_file()
    packed = world.folder / "specchat.vsix"
    from specchat_editors.install.vscode_extension import (
        pack_extension,  # of the plugin, which HTTP clients do not need
    )

    pack_extension(packed)
    data = world.folder / "code"
    world.note("code/User/settings.json", json.dumps({**SETTINGS, "specchat.command": world.program("specchat")}))
    folders = ["--user-data-dir", data, "--extensions-dir", world.folder / "extensions"]
    yield Step("version", f"code-server {world.version('code-server', 'with Code')}")
    said = world.run(program, *folders, "--install-extension", packed)
    assert "successfully installed" in said, said
    yield Step("`--install-extension` of the packed extension", "installed")
    with _serving(world, program, *folders) as address:
        asyncio.run(_rewrite_and_undo(world, browser, address, file))
    yield Step(f"*specchat: rewrite the selection…* with {INSTRUCTION!r}", "the file is rewritten")
    yield Step("Ctrl+Z", "the file is as it was before")


async def _rewrite_and_undo(world: World, browser: str, address: str, file: Path) -> None:
    async with browsing(browser, world.folder / "browser") as page:
        await page.call("Page.navigate", url=f"{address}/?folder={world.project}")
        await _shown(page, f"{FIRST_FILE} != null")
        await _click(page, FIRST_FILE)
        await _shown(page, "document.querySelector('.view-lines')?.innerText.includes('width')")
        await _press(page, F1, "F1")
        await page.call("Input.insertText", text="specchat: rewrite")
        await _shown(page, PALETTE)
        await asyncio.sleep(SETTLING_SECONDS)
        await _press(page, ENTER, "Enter")
        await _shown(page, PROMPT)
        await page.call("Input.insertText", text=INSTRUCTION)
        await _press(page, ENTER, "Enter")
        await _saved(page, file, AREA.replace("width", "breadth"))
        await page.value(f"{EDITOR}.focus()")
        await _press(page, Z, "z", CONTROL)
        await _saved(page, file, AREA)


@contextmanager
def _serving(world: World, program: str, *folders: object) -> Iterator[str]:
    """code-server, which ends with this; its address."""
    log = world.folder / "code.log"
    command = [program, *folders, "--auth", "none", "--bind-addr", "127.0.0.1:0", "--disable-telemetry"]
    with log.open("w") as output:
        server = subprocess.Popen([str(each) for each in command], env=world.environment, stdout=output, stderr=output)
    try:
        until(
            lambda: "HTTP server listening on" in log.read_text(), "code-server did not start: {}".format, log.read_text
        )
        yield log.read_text().partition("HTTP server listening on ")[2].split()[0].rstrip("/")
    finally:
        server.terminate()
        server.wait()


async def _press(page: Page, number: int, name: str, modifiers: int = 0) -> None:
    text = {"text": "\r"} if number == ENTER else {}
    code = name if modifiers == 0 else f"Key{name.upper()}"
    key = {"key": name, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers, **text}
    await page.call("Input.dispatchKeyEvent", type="keyDown", **key)
    await page.call("Input.dispatchKeyEvent", type="keyUp", **key)
    await asyncio.sleep(SETTLING_SECONDS)


async def _click(page: Page, element: str) -> None:
    """Twice, which opens a file and keeps it open."""
    box = f"JSON.stringify({element}.getBoundingClientRect())"
    place = json.loads(await page.value(box))
    at = {"x": place["x"] + 5, "y": place["y"] + 5, "button": "left", "clickCount": 2}
    for kind in ("mousePressed", "mouseReleased"):
        await page.call("Input.dispatchMouseEvent", type=kind, **at)
    await asyncio.sleep(SETTLING_SECONDS)


async def _shown(page: Page, expression: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await page.value(expression):
        assert time.monotonic() < deadline, f"not shown: {expression}"
        await asyncio.sleep(0.1)


async def _saved(page: Page, file: Path, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := await asyncio.to_thread(file.read_text)) != text:
        messages = await page.value("document.querySelector('.notifications-toasts')?.innerText")
        assert time.monotonic() < deadline, f"{found!r}; messages: {messages!r}"
        await asyncio.sleep(0.1)
