"""The shape of a conversation: a Jinja template from a model's folder, rendered as transformers renders it.

Templates are other people's code, so they run in a sandbox and see plain values only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from jinja2 import Environment

# What a base model gets, which was never taught a conversation: the texts, one after the other.
PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


class TemplateError(Exception):
    """A template that cannot be read, or that refuses a conversation. Its text is the template's own."""


class ChatTemplate:
    """A template, and the special tokens it may name."""

    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        from jinja2 import TemplateError as JinjaError

        self.special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(
                PLAIN_TEMPLATE if source is None else source,
                globals={"raise_exception": _raise_exception, "strftime_now": _strftime_now},
            )
        except JinjaError as error:
            raise TemplateError(_first_line(error)) from error

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
        """The text of these messages, and of the beginning of an answer if wanted."""
        from jinja2 import TemplateError as JinjaError

        plain = [dict(message) for message in messages]
        try:
            return self._template.render(
                self.special_tokens,
                messages=plain,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        except (JinjaError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise TemplateError(_first_line(error)) from error


def _environment() -> Environment:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _generation_tag()]
    )
    environment.filters["tojson"] = _to_json
    return environment


def _generation_tag() -> type:
    """`{% generation %}` marks answers for training; here its content is simply shown."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 - jinja reads it from the class

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own filter would escape characters of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError as JinjaError

    raise JinjaError(message)
