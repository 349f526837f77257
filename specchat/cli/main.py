"""The door: `specchat …` on a command line. What goes wrong becomes one line on stderr and an exit code.

0    done                               6    does not fit the context
1    unexpected                         7    model or engine unavailable
2    usage: a wrong option or file      8    the user took nothing of an edit
3    no usable edit                     9    nothing to change
4    an edit that does not parse       10    guesses changed a text ('verify')
5    the file changed meanwhile       130    interrupted, 143 terminated
11   the doctor found a fault         141    nobody reads stdout any more
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from io import TextIOWrapper

import click
from click.shell_completion import shell_complete

from specchat import __version__
from specchat.cli.lazy_group import Later, LazyGroup, Unloaded
from specchat.cli.plugin_commands import Added
from specchat.errors import SpecchatError
from specchat.plugins.discovery import offers
from specchat.threads import wait_calmly

UNEXPECTED = 1
INTERRUPTED = 128 + signal.SIGINT
NOBODY_READS = 128 + 13  # SIGPIPE, which Windows has no name for
COMPLETE = "_SPECCHAT_COMPLETE"  # set by the shell when it wants a word completed
COMMANDS = {
    "ask": Later("specchat.cli.ask:ask", "Answer one question."),
    "demo": Later("specchat.cli.demo:demo", "See speculation at work: the same answer, ever faster."),
    "tui": Later("specchat.cli.tui:tui", "Talk on the whole terminal, with live numbers."),
    "web": Later("specchat.cli.web:web", "The same screen in a browser on this machine."),
    "chat": Later("specchat.cli.chat:chat", "Talk, line by line; everything is kept."),
    "edit": Later("specchat.cli.edit:edit", "Rewrite a file as asked; `-` is a filter."),
    "undo": Later("specchat.cli.undo:undo", "Take an edit back; needs no git."),
    "script": Later("specchat.cli.script:script", "Answer a program with JSON lines; also `specchat -p TEXT --json`."),
    "acp": Later("specchat.cli.acp:acp", "Serve an editor: Agent Client Protocol over stdin and stdout."),
    "lsp": Later("specchat.cli.lsp:lsp", "Serve an editor: completions and edits (Language Server Protocol)."),
    "serve": Later("specchat.cli.serve:serve", "Serve programs that speak the HTTP API of OpenAI."),
    "host": Later("specchat.cli.host:host", "Look at the engine process, or end it."),
    "fleet": Later("specchat.cli.fleet:fleet", "Have vLLM, SGLang or another server answer; launch lines for them."),
    "config": Later("specchat.cli.config:config", "See what holds here and who said so; trust a project."),
    "models": Later("specchat.cli.models:models", "Look at models and heads before they are used."),
    "vram": Later("specchat.cli.vram:vram", "What a model takes in memory, before it is loaded."),
    "doctor": Later("specchat.cli.doctor:doctor", "Is everything in order here, and what would be chosen?"),
    "setup": Later("specchat.cli.setup:setup", "Find the best models for this machine, in at most five answers."),
    "plugins": Later("specchat.cli.plugins:plugins", "List what other packages add."),
    "inspect": Later("specchat.cli.inspect:inspect", "See who guessed each token of an answer."),
    "sessions": Later("specchat.cli.sessions:sessions", "List conversations, and write them to files."),
    "stats": Later("specchat.cli.stats:stats", "What guessing has brought so far, over all conversations."),
    "verify": Later("specchat.cli.verify:verify", "See whether the text is the same here, with and without guesses."),
    "tune": Later("specchat.cli.tune:tune", "Measure these models on this machine, and begin there from now on."),
    "train": Later("specchat.cli.train:train", "Train a head for your model from what you ask it; all stays here."),
    "bench": Later("specchat.cli.bench:bench", "Measure against transformers, or auto against plain decoding."),
}


class Commands(LazyGroup):
    """All commands of specchat, and those of plugins: looked up for a list, and for a name that is not ours."""

    later = COMMANDS

    def added(self) -> Mapping[str, Unloaded]:
        """What other packages add."""
        return {name: Added(offer) for name, offer in offers("commands", COMMANDS).items()}


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="specchat", message="%(prog)s %(version)s")
def cli() -> None:
    """Chat with a language model in the terminal. It guesses ahead to be faster, and never changes the text."""


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    wait_calmly()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character gets the rest of the answer
    if instruction := os.environ.get(COMPLETE):
        sys.exit(shell_complete(cli, {}, "specchat", COMPLETE, instruction))
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str], obj: object = None) -> int:
    """Run a command; click's own `main` is left out because it has exit codes of its own.

    `obj` replaces what opens sessions, see `cli.conversation`.
    """
    try:
        with cli.make_context("specchat", with_command(arguments, _can_draw()), obj=obj) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except SpecchatError as error:
        complain(str(error))
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return NOBODY_READS
    except Exception as error:  # noqa: BLE001 - the edge: nobody above can turn this into a line
        return _unexpected(error)
    return code if isinstance(code, int) else 0


def with_command(arguments: Sequence[str], is_terminal: bool) -> list[str]:
    """`specchat` alone talks, on the whole terminal where there is one; `specchat -p TEXT` answers a program."""
    first = arguments[0] if arguments else ""
    if first in ("-p", "--print", "--json", "--json-once", "--input"):
        return ["script", *arguments]
    if first == "--plain":
        return ["chat", *arguments]
    if not first or first in ("-c", "--continue", "-r", "--resume"):
        return ["tui" if is_terminal else "chat", *arguments]
    return list(arguments)


def _can_draw() -> bool:
    """Whether a screen can be drawn: a terminal on both sides that moves its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def complain(message: str) -> None:
    """One line on stderr."""
    click.echo(f"specchat: {message}", err=True)


def _unexpected(error: Exception) -> int:
    if os.environ.get("SPECCHAT_TRACEBACK"):
        traceback.print_exception(error)
    first_line = (str(error).strip() or "no message").splitlines()[0]
    complain(f"unexpected {type(error).__name__}: {first_line} (SPECCHAT_TRACEBACK=1 shows where)")
    return UNEXPECTED


def _forget_stdout() -> None:
    """Let the interpreter flush into nothing when it ends, so that it does not complain of the broken pipe again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
