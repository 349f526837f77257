"""A plugin for specchat: guesses how rows of numbers go on, and brings a command and a loader about them.

This file is imported in every process of specchat, so it only says what there is; `drafter.py` is imported by the
engine process, `talking.py` when somebody types the command or the name.
"""

from __future__ import annotations

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_drafters() -> list[Extension]:
    return [Extension("counting", "rows of numbers are counted on", "specchat_counting.drafter:build")]


@hookimpl
def register_slash_commands() -> list[Extension]:
    return [Extension("count", "ask for the numbers from 1 to N", "specchat_counting.talking:count", "N")]


@hookimpl
def register_context_loaders() -> list[Extension]:
    return [Extension("numbers", "a row of numbers, as in @numbers:1-20", "specchat_counting.talking:numbers")]
