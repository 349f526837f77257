"""How a model writes conversations: what its chat template makes of messages, thoughts, tools and their calls.

It knows texts and the names of tokens, not how they are encoded.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from specchat.errors import InputError
from specchat.text.chat_template import NO_OPTIONS, ChatTemplate, TemplateError
from specchat.text.control_tokens import ControlTokens
from specchat.text.thinking import ThinkingFormat, find_thinking_format
from specchat.text.tool_formats import HERMES, PROBE_ARGUMENTS, PROBE_NAME, ToolFormat, find_tool_format

AUTO_THINKING = "auto"  # whether the model thinks is left to its chat template
THINKING_SWITCHES = ("enable_thinking", "thinking")  # variables of chat templates: of most families, of DeepSeek
THINKING_FIELDS = {  # where chat templates look for the thinking of an earlier answer
    "reasoning_content": re.compile(r"\breasoning_content\b"),
    "thinking": re.compile(r"""\bmessage\.thinking\b|['"]thinking['"]\s*(?:\]|in message)"""),
}

Message = Mapping[str, Any]  # role, content, and what else it has: thinking, tool_calls, tool_call_id, name


class ChatFormat:
    """The format of one model's conversations."""

    def __init__(
        self, folder: Path, template: ChatTemplate, vocabulary: Mapping[str, int], control_tokens: ControlTokens
    ) -> None:
        self.template = template
        self._folder, self._vocabulary, self._control_tokens = folder, vocabulary, control_tokens

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        thinking: str = AUTO_THINKING,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt of a conversation, for `Tokenizer.encode(..., parse_special=True)`.

        An answer may have its `thinking` beside its `content`. A template that reads it gets it in a field of its own,
        or between the markers in the content, and drops it if it drops earlier thoughts.
        """
        escaped = [self._template_message(message, thinking) for message in messages]
        switch = self.thinking_switch
        options = {switch: thinking == "on"} if switch and thinking != AUTO_THINKING else NO_OPTIONS
        try:
            return self.template.render(
                escaped, add_generation_prompt, options, self._control_tokens.escape_values(tools)
            )
        except TemplateError as error:
            raise InputError(f"{self._folder}: its chat template refuses this conversation: {error}") from error

    def _template_message(self, message: Message, thinking: str) -> dict[str, Any]:
        escape = self._control_tokens.escape
        fields = self._control_tokens.escape_values(
            {name: each for name, each in message.items() if name != "thinking"}
        )
        if not message.get("thinking") or self.thinking is None:
            return fields
        source = self.template.source
        if name := next((name for name, mention in THINKING_FIELDS.items() if mention.search(source)), ""):
            fields[name] = escape(message["thinking"])
        elif self.thinking.closing in source and thinking != "off":
            fields["content"] = self.thinking.answer_text(escape(message["thinking"]), fields["content"])
        return fields

    @cached_property
    def reads_tools(self) -> bool:
        """Whether the chat template tells the model which tools there are."""
        function = {"name": PROBE_NAME, "description": PROBE_NAME, "parameters": {"type": "object", "properties": {}}}
        return PROBE_NAME in self._probe(add_generation_prompt=True, tools=[{"type": "function", "function": function}])

    @cached_property
    def tool_format(self) -> ToolFormat:
        """How the model writes tool calls; that of Hermes for a model whose template has no tools."""
        if not self.reads_tools:
            return HERMES
        call = {"type": "function", "id": "probe0000", "function": {"name": PROBE_NAME, "arguments": PROBE_ARGUMENTS}}
        answer = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "name": PROBE_NAME, "tool_call_id": "probe0000", "content": "result"}
        return find_tool_format(self._probe(answer, result), self.template.source)

    def _probe(
        self, *messages: Message, add_generation_prompt: bool = False, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """A question and these messages as the chat template renders them; "" if it refuses them."""
        question = {"role": "user", "content": "question"}
        try:
            return self.template.render([question, *messages], add_generation_prompt, tools=tools)
        except TemplateError:
            return ""

    @cached_property
    def thinking(self) -> ThinkingFormat | None:
        """How the model marks its thinking; None for a model that does not think."""
        return None if self.template.is_plain else find_thinking_format(self.template.source, self._vocabulary)

    @cached_property
    def thinking_switch(self) -> str:
        """The variable with which the chat template turns thinking on and off; "" if it has none."""
        known = (name for name in THINKING_SWITCHES if name in self.template.variables)
        return next(known, "") if self.thinking else ""

    @cached_property
    def thinking_token_ids(self) -> frozenset[int]:
        """The markers of a thought that are tokens."""
        return self._known_tokens(self.thinking.tokens if self.thinking else ())

    @cached_property
    def tool_token_ids(self) -> frozenset[int]:
        """The markers of a tool call that are tokens."""
        return self._known_tokens(self.tool_format.tokens)

    def _known_tokens(self, tokens: Iterable[str]) -> frozenset[int]:
        return frozenset(self._vocabulary[token] for token in tokens if token in self._vocabulary)

    def escape_answer(self, text: str) -> str:
        """As `ControlTokens.escape`, but the markers of the thought at the beginning stay markers."""
        escape = self._control_tokens.escape
        if self.thinking is None:
            return escape(text)
        before, marker, thought = text.partition(self.thinking.opening)
        opening = f"{before}{marker}" if marker and not before.strip() else ""
        thought, closing, answer = text.removeprefix(opening).partition(self.thinking.closing)
        return f"{opening}{escape(thought)}{closing}{escape(answer)}"

    def stop_token_ids(self) -> frozenset[int]:
        """The control token that the template writes right after an answer."""
        answer = "answer"
        rendered = self._probe({"role": "assistant", "content": answer})
        end = self._control_tokens.pattern.match(rendered.rpartition(answer)[2].lstrip())
        return frozenset((self._vocabulary[end[0]],)) if end else frozenset()
