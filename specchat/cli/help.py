"""`specchat help`: the help of a command, the options that all commands with a model share, and the drafters."""

import re

import click

from specchat.cli.completion import complete_commands
from specchat.cli.options import engine_options
from specchat.profile.drafter_names import all_drafters

CLAUSE = re.compile(r".{10,}?(?=:|;| \(|\.(?: |$)|$)")  # the beginning of a description, which is enough for a list
ENGINE_INTRODUCTION = "Options of every command that uses a model. They count more than its profile (-P)."
ENGINE_HINT = "'specchat help engine weights' says all about --weights; so for each of them."
DRAFTERS_INTRODUCTION = (
    "A drafter proposes the next few tokens (pieces of words) at little cost; the target, the model that answers, "
    "checks them all at once and keeps those that it would have written itself. So a drafter changes how fast an "
    "answer comes, and never its text. A head is a small network that was trained to draft for one target."
)
DRAFTERS_HINT = "'--variant NAME' chooses one, also for 'specchat chat'; docs/variants.md explains each."


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND|engine [OPTION]|drafters]...", shell_complete=complete_commands)
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command.

    `help engine` lists the options of every command that uses a model, and `help drafters` what makes answers faster.
    """
    parent = context.parent
    assert parent is not None, "help is a command of a group"
    if words[:1] == ("engine",):
        records = [record for each in engine_options() if (record := click.Option.get_help_record(each, context))]
        options = [(name, CLAUSE.findall(text)[0]) for name, text in records]
        if words[1:]:
            options = [record for record in records if f"--{words[1]}" in record[0].split()]
        if not options:
            context.fail(f"{words[1]!r} is none of these options; 'specchat help engine' lists them")
        _print_list(context, ENGINE_INTRODUCTION, options, ENGINE_HINT)
        return
    if words == ("drafters",):
        drafters = [(name, drafter.description) for name, drafter in all_drafters().items()]
        _print_list(context, DRAFTERS_INTRODUCTION, drafters, DRAFTERS_HINT)
        return
    for word in words:
        group = parent.command
        found = group.get_command(parent, word) if isinstance(group, click.Group) else None
        if found is None:
            context.fail(f"{word!r} is no command; 'specchat --help' lists them")
        parent = click.Context(found, info_name=word, parent=parent)
    click.echo(parent.command.get_help(parent))


def _print_list(context: click.Context, introduction: str, rows: list[tuple[str, str]], hint: str) -> None:
    formatter = context.make_formatter()
    formatter.write_text(introduction)
    formatter.write_paragraph()
    formatter.write_dl(rows)
    formatter.write_paragraph()
    formatter.write_text(hint)
    click.echo(formatter.getvalue().rstrip("\n"))
