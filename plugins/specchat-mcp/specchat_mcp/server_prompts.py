"""The prompts and resources of MCP servers: names that a user types, and the arguments of a prompt."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specchat.app.tool_sources import OfferedName
from specchat.errors import UsageError
from specchat_mcp.server_errors import shown_line

if TYPE_CHECKING:
    from mcp_types import Prompt

    from specchat_mcp.server_run import Catalog

PREFIX = "mcp:"
MAX_HELP = 100


def prompt_name(server: str, prompt: str) -> str:
    return f"{PREFIX}{server}:{prompt}"


def prompts_of(server: str, catalog: Catalog) -> Iterator[OfferedName]:
    for each in catalog.prompts:
        if each.name == shown_line(each.name, len(each.name)) and " " not in each.name:
            help_text = shown_line(each.description or each.title or f"a prompt of the MCP server {server}", MAX_HELP)
            yield OfferedName(prompt_name(server, each.name), help_text, argument_names(each))


def argument_names(prompt: Prompt) -> str:
    """As help shows them: "PATH [FOCUS]"."""
    names = [(shown_line(each.name, MAX_HELP).upper(), each.required) for each in prompt.arguments or ()]
    return " ".join(name if is_required else f"[{name}]" for name, is_required in names)


def resources_of(server: str, catalog: Catalog | None) -> Iterator[OfferedName]:
    if catalog is None or catalog.templates:
        text = f"a resource of the MCP server {server}"
        templates = ", ".join(each.uri_template for each in catalog.templates) if catalog else ""
        yield OfferedName(f"@{server}:", shown_line(templates or text, MAX_HELP))
    for each in catalog.resources if catalog else ():
        if not any(character.isspace() for character in each.uri) and each.uri.isprintable():
            yield OfferedName(f"@{server}:{each.uri}", shown_line(each.description or each.name, MAX_HELP))


def parse_prompt_arguments(prompt: Prompt, text: str) -> dict[str, str]:
    """NAME=VALUE in any order, and values without a name in the order of the arguments; the last takes the rest.

    >>> parse_prompt_arguments(Prompt(name="p", arguments=[PromptArgument(name="path"), PromptArgument(name="focus")]),
    ...     "src/a.py its error handling")
    {'path': 'src/a.py', 'focus': 'its error handling'}
    """
    names = [each.name for each in prompt.arguments or ()]
    values, rest = dict[str, str](), list[str]()
    for word in _words(text):
        name, equals, value = word.partition("=")
        if equals and name in names:
            values[name] = value
        else:
            rest.append(word)
    open_names = [name for name in names if name not in values]
    if rest and not open_names:
        raise UsageError(f"/{prompt.name} takes {_known(names)}; {rest[0]!r} is one too many")
    values |= dict(zip(open_names, [*rest[: len(open_names) - 1], " ".join(rest[len(open_names) - 1 :])], strict=False))
    values = {name: value for name, value in values.items() if value}
    missing = [each.name for each in prompt.arguments or () if each.required and each.name not in values]
    if missing:
        raise UsageError(f"the prompt {prompt.name} needs {', '.join(missing)}; it takes {argument_names(prompt)}")
    return values


def _words(text: str) -> Sequence[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an apostrophe in a sentence
        return text.split()


def _known(names: Sequence[str]) -> str:
    return ", ".join(names) or "no arguments"
