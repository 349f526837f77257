"""`specchat web`: the screen in a browser on this machine."""

import tempfile
import webbrowser
from html import escape
from pathlib import Path

import click

from specchat import python_child
from specchat.cli.notes import print_note
from specchat_web import tab


def tab_command(*words: str) -> tuple[str, ...]:
    """The words that run `specchat …` for as long as this process lives."""
    command = python_child.python_command("specchat", *words)
    program = command.index(python_child.__file__)
    return (*command[:program], tab.__file__, *command[program:])


CHAT_COMMAND = tab_command("chat")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; a free one by default.")
@click.option("--open", "is_opened", is_flag=True, help="Open it in the browser of this desktop.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF specchat chat]...")
def web(port: int, *, is_opened: bool, arguments: tuple[str, ...]) -> None:
    """Chat in a browser: the same screen and options as `specchat chat`.

    Listens on this machine only. The printed address admits one browser, once.
    """
    from specchat.cli.chat import chat
    from specchat_web.server import bind_loopback_socket, serve

    chat.make_context("chat", list(arguments))  # a wrong option is an error here, not in the browser

    with tempfile.TemporaryDirectory(prefix="specchat-") as folder:

        def announce(address: str) -> None:
            opens = "opening it in your browser" if is_opened else "open it in a browser; it works once"
            print_note(f"specchat web: {address}\n({opens}; Ctrl-C ends it)")
            if is_opened and not webbrowser.open(_redirect_page(Path(folder), address)):
                print_note("specchat web: no browser was found; open the address yourself")

        serve((*CHAT_COMMAND, *arguments), bind_loopback_socket(port), announce)
    print_note("specchat web: ended")


def _redirect_page(folder: Path, address: str) -> str:
    """A private file that redirects there: every user of a machine can read the arguments of a process."""
    page = folder / "specchat.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">')
    return page.as_uri()
