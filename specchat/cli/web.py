"""`specchat web`: the screen in a browser on this machine."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from html import escape
from importlib.util import find_spec
from pathlib import Path

import click

from specchat.errors import UsageError

TUI_COMMAND = (sys.executable, "-m", "specchat.web.die_with_parent", "tui")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Where to listen; left out, a free port.")
@click.option("--open", "is_opened", is_flag=True, help="Show it in the browser of this desktop.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF specchat tui]...")
def web(port: int, *, is_opened: bool, arguments: tuple[str, ...]) -> None:
    """Talk in a browser: the same screen as `specchat tui`, and its options.

    Listens on this machine alone. The printed address lets in one browser, once. Needs the extra `web`.
    """
    if find_spec("textual_serve") is None:
        raise UsageError("a browser needs the package textual-serve; pip install 'specchat[web]'")
    from specchat.cli.tui import tui
    from specchat.web.server import bind_loopback_socket, serve

    tui.make_context("tui", list(arguments))  # a wrong option is told here, not in the browser

    with tempfile.TemporaryDirectory(prefix="specchat-") as folder:

        def tell(address: str) -> None:
            opens = "opening it in your browser" if is_opened else "open it in a browser; it works once"
            click.echo(f"specchat web: {address}\n({opens}; Ctrl-C ends it)", err=True)
            if is_opened and not webbrowser.open(_redirect_page(Path(folder), address)):
                click.echo("specchat web: no browser was found; open the address yourself", err=True)

        serve((*TUI_COMMAND, *arguments), bind_loopback_socket(port), tell)
    click.echo("specchat web: ended", err=True)


def _redirect_page(folder: Path, address: str) -> str:
    """A file of our own that leads there: the arguments of a process can be read by everybody on a machine."""
    page = folder / "specchat.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">')
    return page.as_uri()
