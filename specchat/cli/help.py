"""`specchat help`: the help of a command, and the options that all commands with a model share."""

import click

from specchat.cli.completion import complete_commands
from specchat.cli.options import engine_options


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND|engine]...", shell_complete=complete_commands)
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command. `help engine` explains the options of every command that uses a model."""
    parent = context.parent
    assert parent is not None, "help is a command of a group"
    if words == ("engine",):
        click.echo(_engine_help(context))
        return
    for word in words:
        group = parent.command
        found = group.get_command(parent, word) if isinstance(group, click.Group) else None
        if found is None:
            context.fail(f"{word!r} is no command; 'specchat --help' lists them")
        parent = click.Context(found, info_name=word, parent=parent)
    click.echo(parent.command.get_help(parent))


def _engine_help(context: click.Context) -> str:
    formatter = context.make_formatter()
    formatter.write_text("Options of every command that uses a model. They override its profile (docs/profiles.md).")
    formatter.write_paragraph()
    records = [record for option in engine_options() if (record := click.Option.get_help_record(option, context))]
    formatter.write_dl(records)
    return formatter.getvalue().rstrip("\n")
