"""The six questions that a plugin may answer. Each answer is a list of offers; a plugin answers those it wants to.

A plugin is a module (or an object) with functions of these names under `@hookimpl`, named by an entry point:

    [project.entry-points.specchat]
    counting = "specchat_counting"

Hooks are asked in every process of specchat, also in those that must start in a tenth of a second: import nothing
heavy beside them, and above all no torch. What an offer leads to is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from specchat.plugins.extension import Extension

ENTRY_POINT_GROUP = "specchat"
hookimpl = pluggy.HookimplMarker(ENTRY_POINT_GROUP)
hookspec = pluggy.HookspecMarker(ENTRY_POINT_GROUP)


@hookspec
def register_drafters() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Who can guess ahead. The name is a variant: for `--variant`, `/variant` and the keys of a profile.

    Each leads to `(specchat.assemble.Parts) -> specchat.engine.drafter.Drafter | None`, called in the engine process
    for every conversation; None where the loaded models do not allow it. Whatever a drafter guesses, the text stays.
    """


@hookspec
def register_backends() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Who can run the passes of the target: `backend = NAME` under `[models]` in a profile.

    Each leads to `(pathlib.Path, specchat.models.load.Loading) -> specchat.engine.model.Model`, called in the engine
    process with the folder of the model. Here the promise of equal text rests on the plugin: its passes make it.
    """


@hookspec
def register_commands() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Commands beside `specchat ask`. Each leads to a `click.Command`; the name is what follows `specchat`."""


@hookspec
def register_slash_commands() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Commands in a conversation, on the screen and line by line; the name has no slash and lowercase letters only.

    Each leads to `(specchat.commands.command_registry.Talk, str) -> specchat.commands.command_registry.Reply`: the conversation, and what
    follows the name. Raise `specchat.errors.UsageError` with one line for a person.
    """


@hookspec
def register_context_loaders() -> Sequence[Extension]:  # type: ignore[empty-body]
    """What `@NAME:REST` attaches to a question, such as `@clip:` or `@issue:12`; at least two characters.

    Each leads to `(str) -> str`: what follows the colon, and the text to attach. Raise `specchat.errors.InputError`
    with one line for a person when there is none.
    """


@hookspec
def register_edit_checks() -> Sequence[Extension]:  # type: ignore[empty-body]
    """What an edited text must pass before it is taken, by the ending of its file: the name is such as ".sql".

    Each leads to `(str, str) -> str`: the old text, the new text, and what is wrong with the new one; "" for nothing.
    """
