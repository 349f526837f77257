"""`specchat web` before it serves: what is missing, and what cannot be."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from specchat_web.command import CHAT_COMMAND
from tests.each_row import each_row
from tests.front import command
from tests.processes import modules_after

PLUGIN = str(Path(__file__).parents[1])


def test_a_wrong_option_of_the_screen_is_told_before_anything_is_served(monkeypatch):
    ran = command(monkeypatch, "web", "--tmeperature", "1")

    assert ran.code == 2 and "no such option '--tmeperature'" in ran.err


def test_options_of_the_screen_reach_every_tab(monkeypatch):
    served = []
    monkeypatch.setattr("specchat_web.server.serve", lambda line, socket, tell: (served.append(line), socket.close()))

    ran = command(monkeypatch, "web", "--port", "0", "--ascii", "--profile", "plain")

    assert ran.code == 0 and ran.err == "specchat web: ended\n"
    assert served == [(*CHAT_COMMAND, "--ascii", "--profile", "plain")]


@each_row("is_opened", [False, True])
def test_it_says_the_address_and_whether_it_opens_a_browser(monkeypatch, is_opened):
    shown = []

    def show(page: str) -> bool:
        with open(url2pathname(urlparse(page).path)) as file:  # noqa: PTH123 (an address, not a path)
            shown.append(file.read())
        return True

    def serve(line, socket, tell):
        socket.close()
        tell("http://127.0.0.1:1/?token=t")

    monkeypatch.setattr(webbrowser, "open", show)
    monkeypatch.setattr("specchat_web.server.serve", serve)

    ran = command(monkeypatch, "web", *(["--open"] if is_opened else []))

    assert ran.err.startswith("specchat web: http://127.0.0.1:1/?token=t\n")
    assert ("opening it in your browser" in ran.err) is is_opened
    assert bool(shown) is is_opened and all("url=http://127.0.0.1:1/?token=t" in page for page in shown)


def test_looking_for_the_command_imports_no_server():
    modules = modules_after(f"import sys; sys.path.append({PLUGIN!r}); import specchat_web.command")

    assert not modules & {"aiohttp", "textual", "textual_serve", "torch"}
