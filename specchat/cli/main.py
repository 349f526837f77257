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
from specchat.cli.lazy_group import LazyCommand, LazyGroup, UnloadedCommand
from specchat.cli.plugin_commands import PluginCommand
from specchat.errors import SpecchatError
from specchat.plugins.discovery import find_extensions
from specchat.threads import use_passive_waiting

UNEXPECTED_EXIT_CODE = 1
INTERRUPTED_EXIT_CODE = 128 + signal.SIGINT
BROKEN_PIPE_EXIT_CODE = 128 + 13  # SIGPIPE, which Windows has no name for
COMPLETION_VARIABLE = "_SPECCHAT_COMPLETE"  # set by the shell when it wants a word completed
COMMANDS = {
    "ask": LazyCommand("specchat.cli.ask:ask", "Answer one question."),
    "demo": LazyCommand("specchat.cli.demo:demo", "See speculation at work: the same answer, ever faster."),
    "tui": LazyCommand("specchat.cli.tui:tui", "Talk on the whole terminal, with live numbers."),
    "web": LazyCommand("specchat.cli.web:web", "The same screen in a browser on this machine."),
    "chat": LazyCommand("specchat.cli.chat:chat", "Talk, line by line; everything is kept."),
    "edit": LazyCommand("specchat.cli.edit:edit", "Rewrite a file as asked; `-` is a filter."),
    "undo": LazyCommand("specchat.cli.undo:undo", "Take an edit back; needs no git."),
    "script": LazyCommand(
        "specchat.cli.script:script", "Answer a program with JSON lines; also `specchat -p TEXT --json`."
    ),
    "acp": LazyCommand("specchat.cli.acp:acp", "Serve an editor: Agent Client Protocol over stdin and stdout."),
    "lsp": LazyCommand("specchat.cli.lsp:lsp", "Serve an editor: completions and edits (Language Server Protocol)."),
    "serve": LazyCommand("specchat.cli.serve:serve", "Serve programs that speak the HTTP API of OpenAI."),
    "host": LazyCommand("specchat.cli.host:host", "Look at the engine process, or end it."),
    "fleet": LazyCommand(
        "specchat.cli.fleet:fleet", "Have vLLM, SGLang or another server answer; launch lines for them."
    ),
    "config": LazyCommand("specchat.cli.config:config", "See what holds here and who said so; trust a project."),
    "models": LazyCommand("specchat.cli.models:models", "Look at models and heads before they are used."),
    "vram": LazyCommand("specchat.cli.vram:vram", "What a model takes in memory, before it is loaded."),
    "doctor": LazyCommand("specchat.cli.doctor:doctor", "Is everything in order here, and what would be chosen?"),
    "setup": LazyCommand("specchat.cli.setup:setup", "Find the best models for this machine, in at most five answers."),
    "plugins": LazyCommand("specchat.cli.plugins:plugins", "List what other packages add."),
    "inspect": LazyCommand("specchat.cli.inspect:inspect", "See who guessed each token of an answer."),
    "sessions": LazyCommand("specchat.cli.sessions:sessions", "List conversations, and write them to files."),
    "stats": LazyCommand("specchat.cli.stats:stats", "What guessing has brought so far, over all conversations."),
    "verify": LazyCommand(
        "specchat.cli.verify:verify", "See whether the text is the same here, with and without guesses."
    ),
    "tune": LazyCommand("specchat.cli.tune:tune", "Measure these models on this machine, and begin there from now on."),
    "train": LazyCommand(
        "specchat.cli.train:train", "Train a head for your model from what you ask it; all stays here."
    ),
    "bench": LazyCommand("specchat.cli.bench:bench", "Measure against transformers, or auto against plain decoding."),
}


class SpecchatGroup(LazyGroup):
    """All commands of specchat, and those of plugins: looked up for a list, and for a name that is not ours."""

    lazy_commands = COMMANDS

    def plugin_commands(self) -> Mapping[str, UnloadedCommand]:
        """What other packages add."""
        return {name: PluginCommand(offer) for name, offer in find_extensions("commands", COMMANDS).items()}


@click.group(cls=SpecchatGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="specchat", message="%(prog)s %(version)s")
def cli() -> None:
    """Chat with a language model in the terminal. It guesses ahead to be faster, and never changes the text."""


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    use_passive_waiting()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character gets the rest of the answer
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        sys.exit(shell_complete(cli, {}, "specchat", COMPLETION_VARIABLE, instruction))
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str], obj: object = None) -> int:
    """Run a command; click's own `main` is left out because it has exit codes of its own.

    `obj` replaces what opens sessions, see `cli.conversation`.
    """
    try:
        with cli.make_context("specchat", with_default_command(arguments, _can_show_screen()), obj=obj) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except SpecchatError as error:
        print_error(str(error))
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print_error("interrupted")
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        _discard_stdout()
        return BROKEN_PIPE_EXIT_CODE
    except Exception as error:  # noqa: BLE001 - the edge: nobody above can turn this into a line
        return _report_unexpected(error)
    return code if isinstance(code, int) else 0


def with_default_command(arguments: Sequence[str], is_terminal: bool) -> list[str]:
    """`specchat` alone talks, on the whole terminal where there is one; `specchat -p TEXT` answers a program."""
    first = arguments[0] if arguments else ""
    if first in ("-p", "--print", "--json", "--json-once", "--input"):
        return ["script", *arguments]
    if first == "--plain":
        return ["chat", *arguments]
    if not first or first in ("-c", "--continue", "-r", "--resume"):
        return ["tui" if is_terminal else "chat", *arguments]
    return list(arguments)


def _can_show_screen() -> bool:
    """Whether a screen can be drawn: a terminal on both sides that moves its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def print_error(message: str) -> None:
    """One line on stderr."""
    click.echo(f"specchat: {message}", err=True)


def _report_unexpected(error: Exception) -> int:
    if os.environ.get("SPECCHAT_TRACEBACK"):
        traceback.print_exception(error)
    first_line = (str(error).strip() or "no message").splitlines()[0]
    print_error(f"unexpected {type(error).__name__}: {first_line} (SPECCHAT_TRACEBACK=1 shows where)")
    return UNEXPECTED_EXIT_CODE


def _discard_stdout() -> None:
    """Let the interpreter flush into nothing when it ends, so that it does not complain of the broken pipe again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
