"""A group of commands that are imported only when they run, so that `--help` is fast."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import cast

import click

from specchat.own_tables import own_tables


@dataclass(frozen=True)
class LazyCommand:
    """A command before it is imported: its path ("package.module:attribute") and its line in the list."""

    import_path: str
    help: str

    def load(self) -> click.Command:
        module, _, attribute = self.import_path.partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))


def commands_of(group: str) -> Mapping[str, LazyCommand]:
    """The commands of a group in `commands.toml`."""
    return {name: LazyCommand(*entry) for name, entry in own_tables(__file__, "commands.toml")[group].items()}


class LazyGroup(click.Group):
    lazy_commands: Mapping[str, LazyCommand] = {}

    def plugin_commands(self) -> Mapping[str, LazyCommand]:
        """Further commands, looked up only for the list and for a name that is not in `lazy_commands`."""
        return {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy_commands, *self.plugin_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.lazy_commands.get(cmd_name) or self.plugin_commands().get(cmd_name)
        return command.load() if command else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The named command; UsageError with the commands of similar names."""
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing) and self.get_command(ctx, name) is None:
            similar = get_close_matches(name, self.list_commands(ctx), cutoff=0.5)
            meant = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
            ctx.fail(f"No such command {name!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        commands = {**self.lazy_commands, **self.plugin_commands()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.help) for name, each in commands.items()])
