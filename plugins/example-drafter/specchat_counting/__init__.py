"""A plugin for specchat: a drafter for sequences of numbers, a slash command and a context loader.

    sequences.py         the next numbers of a sequence, on strings
    drafter.py           the drafter, imported by the engine process
    chat_extensions.py   the slash command and the loader, imported at first use

Every process of specchat imports this file, so it only declares the extensions.
"""

from __future__ import annotations

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_drafters() -> list[Extension]:
    return [Extension("counting", "continues sequences of numbers", "specchat_counting.drafter:build")]


@hookimpl
def register_slash_commands() -> list[Extension]:
    return [Extension("count", "ask for the numbers from 1 to N", "specchat_counting.chat_extensions:count", "N")]


@hookimpl
def register_context_loaders() -> list[Extension]:
    description = "a sequence of numbers, as in @numbers:1-20"
    return [Extension("numbers", description, "specchat_counting.chat_extensions:numbers")]
