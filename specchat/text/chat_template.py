"""Renders the Jinja chat template of a model as transformers renders it.

Templates are untrusted code, so they run in a sandbox (template_sandbox.py), get plain values only, and have a budget.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from specchat.text.template_budget import TemplateLimitError, template_budget

if TYPE_CHECKING:
    from jinja2 import Template

MAX_TEMPLATE_CHARACTERS = 2**18  # published ones have up to 30,000
MAX_DATE_FORM = 256
TEMPLATE_FAULTS = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, SyntaxError, RecursionError, MemoryError,
    TemplateLimitError,
)  # fmt: skip
# For base models, which have no template: the texts, one after the other.
PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


NO_OPTIONS: Mapping[str, object] = {}


class TemplateError(Exception):
    """The template is invalid or rejects a conversation. The message is the template's own."""


class ChatTemplate:
    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        self.special_tokens = dict(special_tokens)
        self.is_plain = not (source or "").strip()  # a base model: texts, and no roles
        self.source = PLAIN_TEMPLATE if self.is_plain else source or ""
        self._template = _compile(self.source)

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that the template reads without defining them, such as "messages" and "enable_thinking"."""
        from jinja2.meta import find_undeclared_variables

        return frozenset(find_undeclared_variables(self._template.environment.parse(self.source)))

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
        plain = [dict(message) for message in messages]
        characters = sum(len(message["content"]) for message in plain if isinstance(message.get("content"), str))
        with _limited(characters):
            return self._template.render(
                self.special_tokens,
                messages=plain,
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **options,
            )


def _compile(source: str) -> Template:
    from specchat.text.template_sandbox import TemplateEnvironment

    if len(source) > MAX_TEMPLATE_CHARACTERS:
        raise TemplateError(f"it has {len(source)} characters, and at most {MAX_TEMPLATE_CHARACTERS} are read")
    functions = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    with _limited():
        return TemplateEnvironment().from_string(source, globals=functions)


@contextmanager
def _limited(characters: int = 0) -> Generator[None]:
    """Templates have a budget inside, and what they fail with is a TemplateError."""
    from jinja2 import TemplateError as JinjaError

    try:
        with template_budget(characters):
            yield
    except (JinjaError, *TEMPLATE_FAULTS) as error:
        raise TemplateError(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError | MemoryError):  # the latter is also what Python's parser says
        return "it is nested too deeply, or would take too much memory"
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form[:MAX_DATE_FORM])


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError as JinjaError

    raise JinjaError(message)
