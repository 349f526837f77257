"""The command line `specchat …`. Every error becomes one line on stderr and an exit code.

0    done                               6    does not fit the context
1    unexpected                         7    model or engine unavailable
2    usage: a wrong option or file      8    the user accepted nothing of an edit
3    no usable edit                     9    nothing to change
4    an edit that does not parse       10    drafting changed a text ('verify')
5    the file changed meanwhile       130    interrupted, 143 terminated
11   the doctor found a fault         141    the reader of stdout is gone
129  the terminal is gone
"""

import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper

import click
from click.shell_completion import CompletionItem, shell_complete

from specchat import __version__
from specchat.cli.completion import COMPLETION_VARIABLE
from specchat.cli.help_page import HelpPage
from specchat.cli.lazy_group import LazyCommand, LazyGroup, commands_of
from specchat.cli.notes import print_wrapped
from specchat.errors import HostError, SpecchatError, first_line
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension
from specchat.plugins.own_plugins import OWN_PLUGINS, missing_plugin
from specchat.terminal import (
    HANGUP_EXIT_CODE,
    guarded_terminal,
    is_interactive,
    is_terminal_gone,
    replace_closed_streams,
    wants_plain_lines,
)
from specchat.threads import use_passive_waiting

UNEXPECTED_EXIT_CODE = 1
INTERRUPTED_EXIT_CODE = 128 + signal.SIGINT
BROKEN_PIPE_EXIT_CODE = 128 + 13  # SIGPIPE, which Windows does not name
click.Context.formatter_class = HelpPage
GROUP_OPTIONS = ("-h", "--help", "--version")
CONNECTION_CLOSED = "the engine process closed the connection; run the command again"
COMMANDS = commands_of("specchat")


@dataclass(frozen=True)
class PluginCommand(LazyCommand):
    extension: Extension

    def load(self) -> click.Command:
        command = self.extension.load()
        if not isinstance(command, click.Command):
            raise self.extension.plugin_error(f"is a {type(command).__name__}, which is no click.Command")
        return command


class SpecchatGroup(LazyGroup):
    """All commands; those of plugins are looked up for a list, and for a name that is not built in."""

    lazy_commands = COMMANDS

    def plugin_commands(self) -> Mapping[str, LazyCommand]:
        return {
            name: PluginCommand(extension.object_reference, extension.description, extension)
            for name, extension in find_extensions("commands", COMMANDS).items()
        }

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in OWN_PLUGINS and not ctx.resilient_parsing:
            raise missing_plugin(f"'specchat {cmd_name}'", cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """While a shell completes `specchat -P …`, the words before it belong to the chat that they would start."""
        routed = with_default_command(args, is_terminal=True) if ctx.resilient_parsing and args else args
        return super().parse_args(ctx, routed)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands; after a dash also the options of the chat that starts without a command."""
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("-"):
            return found
        chat = COMMANDS["chat"].load()
        named = {item.value for item in found}
        options = chat.shell_complete(click.Context(chat, parent=ctx, resilient_parsing=True), incomplete)
        return [*found, *(item for item in options if item.value not in named)]


@click.group(cls=SpecchatGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="specchat", message="%(prog)s %(version)s")
def cli() -> None:
    """Chat with a language model in the terminal, and edit files with it.

    Speculative decoding makes answers faster and never changes their text. Without a command it is a chat:

    \b
    specchat "What is a coroutine?"   ask, and go on talking
    specchat -c                       continue the last conversation of this folder; -r ID another one
    specchat -P code                  with a profile; `specchat help engine` lists more options
    specchat --plain                  line by line, for screen readers
    specchat -p "…" --json            for programs
    """


def main() -> None:
    use_passive_waiting()
    if "stdout" in replace_closed_streams():
        print_error("standard output is closed, so nothing could be answered; redirect it to a file or to /dev/null")
        sys.exit(BROKEN_PIPE_EXIT_CODE)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that the terminal lacks is replaced
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        sys.exit(_complete(instruction))
    sys.exit(run(sys.argv[1:]))


def _complete(instruction: str) -> int:
    """Answer a shell. An error would be printed into the line that the user types, so nothing is offered instead."""
    try:
        return shell_complete(cli, {}, "specchat", COMPLETION_VARIABLE, instruction)
    except Exception:  # noqa: BLE001 - the outermost level, as in `_run`
        return UNEXPECTED_EXIT_CODE


def run(arguments: Sequence[str]) -> int:
    """Run a command; click's own `main` has other exit codes."""
    with guarded_terminal():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        colours = False if wants_plain_lines() else None  # None: on a terminal
        words = with_default_command(arguments, is_interactive())
        with cli.make_context("specchat", words, color=colours) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except SpecchatError as error:
        print_error(str(error))
        return error.exit_code
    except click.ClickException as error:
        print_wrapped(_usage_text(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print_error("interrupted")
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE_EXIT_CODE
    except ConnectionError:
        print_error(CONNECTION_CLOSED)
        return HostError.exit_code
    except Exception as error:  # noqa: BLE001 - the outermost level: an error becomes one line
        if isinstance(error, OSError) and is_terminal_gone(error):
            _discard_output()
            return HANGUP_EXIT_CODE
        if os.environ.get("SPECCHAT_TRACEBACK"):
            traceback.print_exception(error)
        print_error(f"unexpected {type(error).__name__}: {first_line(error)} (SPECCHAT_TRACEBACK=1 shows where)")
        return UNEXPECTED_EXIT_CODE
    return code if isinstance(code, int) else 0


def _discard_output() -> None:
    """Write to nothing from now on: the interpreter flushes stdout at exit, and would report its error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def with_default_command(arguments: Sequence[str], is_terminal: bool) -> list[str]:
    """`specchat` alone, its options and a question start a chat; `specchat -p TEXT` answers a program.

    Where no terminal can show a chat, a question is answered once.
    """
    first = arguments[0] if arguments else ""
    if first in ("-p", "--print", "--json"):
        return ["script", *arguments]
    if not first or (first.startswith("-") and first not in GROUP_OPTIONS):
        return ["chat", *arguments]
    if len(first.split()) > 1:  # more than a word is no command
        return ["chat" if is_terminal else "ask", *arguments]
    return list(arguments)


def _usage_text(error: click.ClickException) -> str:
    """What is wrong with the words of a command, in one line, and where the right ones are listed.

    Of a group without a command it is its help.
    """
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return message
    if isinstance(error, click.NoSuchOption):
        similar = f" Did you mean {error.possibilities[0]}?" if error.possibilities else ""  # the nearest
        message = f"no such option {error.option_name!r}.{similar}"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = f"{message.removesuffix('.')} ('{error.ctx.command_path} --help' shows what can be given)"
    return f"specchat: {message}"


def print_error(message: str) -> None:
    print_wrapped(f"specchat: {message}")
