"""Completion in bash, zsh and fish, and what is offered for a profile, a conversation or a model.

`specchat completion SHELL` prints the lines for a shell.

Every function has the signature that click wants for `shell_complete`. Reads names only, starts no engine and uses no
network; what it needs is imported inside, because every command imports this file.
"""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
COMPLETION_VARIABLE = "_SPECCHAT_COMPLETE"  # set by the shell when it wants a word completed
PATH_STARTS = ("/", ".", "~")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the lines that complete commands, options, profiles, conversations and models in a shell.

    \b
    bash   eval "$(specchat completion bash)"    in ~/.bashrc
    zsh    eval "$(specchat completion zsh)"     in ~/.zshrc, after compinit
    fish   specchat completion fish | source     in ~/.config/fish/config.fish
    """
    script = get_completion_class(shell)
    assert script is not None, "click knows these shells"
    click.echo(script(context.find_root().command, {}, "specchat", COMPLETION_VARIABLE).source(), nl=False)


def complete_files(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell completes the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def complete_profiles(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from specchat.profile.profile_files import profile_names

    return _names_or_files(context, param, incomplete, profile_names())


def complete_sessions(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of stored conversations, the last used first, each with its name."""
    from contextlib import closing

    from specchat.history.history_reader import HistoryReader
    from specchat.host.spawn import history_path
    from specchat.terminal import printable_with_tabs

    if not history_path().is_file():
        return []
    with closing(HistoryReader(history_path())) as history:
        threads = [thread for thread in history.threads() if thread.id.startswith(incomplete)]
    return [CompletionItem(thread.id, help=printable_with_tabs(" ".join(thread.name.split()))) for thread in threads]


def complete_models(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The models on this disk by the names that `--target` takes, and files."""
    from specchat.hub.local_models import models_on_disk
    from specchat.profile.keys import EMBEDDED

    return _names_or_files(context, param, incomplete, [EMBEDDED, *(model.id for model in models_on_disk())])


def complete_catalog(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The models that can be downloaded."""
    from specchat.hub.catalog import catalog
    from specchat.profile.keys import STARTER

    return _starting_with(incomplete, [STARTER, *catalog()])


def complete_commands(context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The commands of `specchat help`, and those of the group that is named already."""
    group, inner = context.find_root().command, context
    for word in context.params.get("words") or ():
        group = group.get_command(inner, word) if isinstance(group, click.Group) else None
    names = group.list_commands(inner) if isinstance(group, click.Group) else []
    is_first = group is context.find_root().command
    return _starting_with(incomplete, [*names, *["engine", "drafters"] * is_first])


def _names_or_files(
    context: click.Context, param: click.Parameter, incomplete: str, names: Iterable[str]
) -> list[CompletionItem]:
    if incomplete.startswith(PATH_STARTS):
        return complete_files(context, param, incomplete)
    return _starting_with(incomplete, names)


def _starting_with(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
