"""A plugin that completes gaps and whole prompts, for front ends that ask the engine process for it.

    fim_completer.py    completions: prefill, decode, events
    fim_tokens.py       the control tokens of each model family, and the prompt of a completion

Every process of specchat imports this file, so it only declares the extension.
"""

from __future__ import annotations

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_completers() -> list[Extension]:
    return [
        Extension(
            "fill-in-the-middle",
            "completions of gaps and of whole prompts, for editors and programs",
            "specchat_completions.fim_completer:FimCompleter",
        )
    ]
