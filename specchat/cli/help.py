"""`specchat help`: the help of a command, the options that all commands with a model share, and the drafters."""

import re

import click

from specchat.cli.completion import complete_commands
from specchat.cli.options import engine_options
from specchat.profile import all_drafters

CLAUSE = re.compile(r".{10,}?(?=:|;| \(|\.(?: |$))")  # the beginning of a description, which is enough for a list
ENGINE_INTRODUCTION = (
    "Options of every command that uses a model. They count more than its profile (-P). The target is the model that "
    "answers; 'specchat help drafters' explains drafters, draft models and heads."
)
ONE_OPTION = "'specchat help engine weights' says all about --weights; so for each of them."
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
        click.echo(_engine_help(context, words[1:]))
        return
    if words == ("drafters",):
        drafters = [(name, drafter.description) for name, drafter in all_drafters().items()]
        click.echo(_list(context, DRAFTERS_INTRODUCTION, drafters, DRAFTERS_HINT))
        return
    for word in words:
        group = parent.command
        found = group.get_command(parent, word) if isinstance(group, click.Group) else None
        if found is None:
            context.fail(f"{word!r} is no command; 'specchat --help' lists them")
        parent = click.Context(found, info_name=word, parent=parent)
    click.echo(parent.command.get_help(parent))


def _engine_help(context: click.Context, names: tuple[str, ...]) -> str:
    """All options, each in a few words, or all about those that are named."""
    options = {name: option for option in engine_options() for name in (*option.opts, *option.secondary_opts)}
    if unknown := [name for name in names if f"--{name}" not in options]:
        context.fail(f"{unknown[0]!r} is none of these options; 'specchat help engine' lists them")
    chosen = [options[f"--{name}"] for name in names] or list(dict.fromkeys(options.values()))
    records = [record for each in chosen if (record := click.Option.get_help_record(each, context))]
    if names:
        return _list(context, "", records, "")
    short = [(name, found[0] if (found := CLAUSE.match(text)) else text) for name, text in records]
    return _list(context, ENGINE_INTRODUCTION, short, ONE_OPTION)


def _list(context: click.Context, introduction: str, rows: list[tuple[str, str]], hint: str) -> str:
    formatter = context.make_formatter()
    for part in (introduction, rows, hint):
        formatter.write_paragraph()
        if isinstance(part, str):
            formatter.write_text(part)
        else:
            formatter.write_dl(part)
    return formatter.getvalue().strip("\n")
