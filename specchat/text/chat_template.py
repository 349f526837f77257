"""Renders the Jinja chat template of a model as transformers renders it.

Templates are untrusted code, so they run in a sandbox, get plain values only, and end after a time limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from jinja2 import Environment

# For base models, which have no template: the texts, one after the other.
TEMPLATE_FILE = "<template>"  # how jinja names the code of a template
RENDER_SECONDS = 3.0  # a conversation takes milliseconds
TEMPLATE_FAULTS = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, TimeoutError, RecursionError, MemoryError
)  # fmt: skip
PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


NO_OPTIONS: Mapping[str, object] = {}


class TemplateError(Exception):
    """The template is invalid or rejects a conversation. The message is the template's own."""


class ChatTemplate:
    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        from jinja2 import TemplateError as JinjaError

        self.special_tokens = dict(special_tokens)
        self.is_plain = source is None  # a base model: texts, and no roles
        self.source = PLAIN_TEMPLATE if source is None else source
        try:
            self._template = _environment().from_string(
                self.source,
                globals={"raise_exception": _raise_exception, "strftime_now": _strftime_now},
            )
        except JinjaError as error:
            raise TemplateError(_first_line(error)) from error

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that the template reads without defining them, such as "messages" and "enable_thinking"."""
        from jinja2.meta import find_undeclared_variables

        return frozenset(find_undeclared_variables(_environment().parse(self.source)))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        options: Mapping[str, object] = NO_OPTIONS,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Return the prompt text of these messages; with `add_generation_prompt`, also the start of an answer.

        `options` are variables of the template, such as `enable_thinking`. `tools` have the form of OpenAI's API.
        """
        from jinja2 import TemplateError as JinjaError

        plain = [dict(message) for message in messages]
        try:
            with _time_limit(RENDER_SECONDS):
                return self._template.render(
                    self.special_tokens,
                    messages=plain,
                    tools=list(tools) or None,
                    documents=None,
                    add_generation_prompt=add_generation_prompt,
                    **options,
                )
        except (JinjaError, *TEMPLATE_FAULTS) as error:
            raise TemplateError(_first_line(error)) from error


@contextmanager
def _time_limit(seconds: float) -> Generator[None]:
    """End a template that loops: a trace function sees each line of it, and no line of other code."""
    deadline = monotonic() + seconds

    def on_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        return on_line if frame.f_code.co_filename == TEMPLATE_FILE else None

    def on_line(_frame: FrameType, _event: str, _argument: Any) -> Any:
        if monotonic() > deadline:
            raise TimeoutError(f"it runs for more than {seconds:.0f} seconds")
        return on_line

    previous = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(previous)


def _environment() -> Environment:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _generation_tag()]
    )
    environment.filters["tojson"] = _to_json
    return environment


def _generation_tag() -> type:
    """`{% generation %}` marks answers for training; here its content is rendered as it is."""
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
    """Jinja's own filter escapes HTML characters; transformers' does not."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError as JinjaError

    raise JinjaError(message)
