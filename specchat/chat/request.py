"""A request to a session: a value, validated when it is created. Knows no model and no screen."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from specchat.chat.events import REPETITION
from specchat.chat.repetition import EXPLANATION
from specchat.chat.schema_check import check_ends, parse_schema
from specchat.chat.tools import ANY_TOOL, CALL_OR_ANSWER, NO_TOOL, SOME_TOOL, TOOL_CHOICES, Tool, ToolResult
from specchat.errors import ContextError, UsageError
from specchat.profile.keys import ANSWER_FORMATS, THINKING_MODES, Sampling

# the answer is a whole file, search/replace blocks, or the name of an operation
EDIT_TASK, BLOCKS_TASK, OPERATION_TASK = EDIT_TASKS = ("edit", "edit-blocks", "edit-operation")
SCHEMA, REGEX, CHOICES, LARK = FORMAT_KINDS = ANSWER_FORMATS
MAX_ATTACHED_BYTES = 32 * 2**20
MAX_CHARACTERS_PER_TOKEN = 128  # the longest token of common vocabularies: so many spaces or dashes


@dataclass(frozen=True)
class AnswerFormat:
    """The format of an answer, as text: a schema in JSON, a regular expression, a JSON list of choices, or a grammar.

    The grammar is one of llguidance, in its variant of Lark.
    """

    kind: str
    text: str

    @classmethod
    def parse(cls, kind: str, value: Any) -> Self:
        """Validate the input of a user, as far as possible without a model; UsageError for invalid input."""
        match kind, value:
            case "schema", dict():
                check_ends(value)
                return cls(kind, json.dumps(value))
            case "schema", str():
                return cls.parse(kind, parse_schema(value))
            case "regex" | "lark", str() if value:
                return cls(kind, value)
            case "choices", (list() | tuple()) if value and all(isinstance(text, str) and text for text in value):
                return cls(kind, json.dumps(list(dict.fromkeys(value))))
        expected = {SCHEMA: "a JSON schema, which is an object", REGEX: "a regular expression", LARK: "a grammar"}
        raise UsageError(f"{kind}: give {expected.get(kind, 'choices, none of them empty')}")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self | None:
        """The format in these options, if any; UsageError when there are several."""
        named = [kind for kind in FORMAT_KINDS if options.get(kind) not in (None, (), "")]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)}: an answer has one format; give one of them")
        return cls.parse(named[0], options[named[0]]) if named else None

    def truncated_message(self, finish_reason: str) -> str:
        if finish_reason == REPETITION:
            return f"{EXPLANATION} (the answer does not match the {self.kind})"
        return f"the answer was truncated at its limit and does not match the {self.kind}; raise --max-tokens"

    @property
    def value(self) -> Any:
        """The input of `parse`: a schema, an expression, the choices, or a grammar."""
        return self.text if self.kind in (REGEX, LARK) else json.loads(self.text)

    @property
    def regex(self) -> str:
        return "|".join(re.escape(choice) for choice in self.value) if self.kind == CHOICES else self.text


@dataclass(frozen=True)
class TokenBias:
    """What is added to the logit of a token before it is sampled."""

    token_id: int
    bias: float


def check_token_ids(ids: Sequence[int], vocab_size: int) -> None:
    if unknown := next((token for token in ids if not 0 <= token < vocab_size), None):
        raise UsageError(f"there is no token {unknown}; the model has the tokens 0 to {vocab_size - 1}")


@dataclass(frozen=True)
class Attachment:
    name: str
    text: str


@dataclass(frozen=True)
class Request:
    """One question, and how to answer it.

    `max_tokens`, `seed`, `temperature`, `variant` and `thinking` (on, off, auto) override the profile. `task` is what
    the command that makes the request wants (EDIT_TASKS), "" in a chat. `file_to_rewrite` names the file, attached here
    or earlier in the conversation, of which the answer will be a new version. `answer_prefix` is the beginning of the
    answer, which the model continues. `wants_probabilities`: the steps carry the probabilities of their tokens, for the
    inspector. `only_renders`: the answer is the prompt as the chat template writes it. `tool_results` answer the calls
    of the last turn; with them, the text may be empty. `tool_choice` is one of TOOL_CHOICES, CALL_OR_ANSWER, or the
    name of the tool that the answer must call. `answer_tool` is the tool whose
    call is the text of the answer; a session sets it (`answer_grammar.py`). `compacts`: what the model reads of earlier
    rounds of tools is shortened when the context window is full (`context_fit.py`).
    """

    text: str
    files: tuple[Attachment, ...] = ()
    max_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    variant: str | None = None
    stop: tuple[str, ...] = ()
    task: str = ""
    file_to_rewrite: str = ""
    answer_prefix: str = ""
    answer_format: AnswerFormat | None = None
    thinking: str | None = None
    wants_probabilities: bool = False
    only_renders: bool = False
    logit_bias: tuple[TokenBias, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: str = ANY_TOOL
    tool_results: tuple[ToolResult, ...] = ()
    answer_tool: str = ""
    compacts: bool = False

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.tool_results:
            raise UsageError("the prompt is empty; give a question as an argument or on standard input")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if self.temperature is not None and not 0 <= self.temperature <= 5:
            raise UsageError(f"the temperature must lie between 0 and 5, not {self.temperature}")
        if self.thinking not in (None, *THINKING_MODES):
            raise UsageError(f"thinking must be one of {', '.join(THINKING_MODES)}, not {self.thinking!r}")
        if self.tool_choice not in (*TOOL_CHOICES, CALL_OR_ANSWER, *(tool.name for tool in self.tools)):
            raise UsageError(f"tool_choice: no tool is named {self.tool_choice!r}")
        if "" in self.stop:
            raise UsageError("a stop string must not be empty")

    @property
    def offered_tools(self) -> tuple[Tool, ...]:
        """The tools that the model hears of and may call."""
        return () if self.tool_choice == NO_TOOL else self.tools

    @property
    def forced_schemas(self) -> dict[str, dict[str, Any]]:
        """The schemas of the tools of which the answer must call one, by name; none if it need not."""
        if self.tool_choice in (ANY_TOOL, NO_TOOL, CALL_OR_ANSWER):
            return {}
        return {tool.name: tool.schema for tool in self.tools if self.tool_choice in (SOME_TOOL, tool.name)}

    def check_size(self, context_window: int) -> None:
        """ContextError for a question that is too long for any tokenizer, found without tokenizing it."""
        given = (self.text, *(file.text for file in self.files), *(result.text for result in self.tool_results))
        characters = sum(map(len, given))
        if context_window and characters > context_window * MAX_CHARACTERS_PER_TOKEN:
            tokens = -(-characters // MAX_CHARACTERS_PER_TOKEN)
            raise ContextError(
                f"the question has {characters} characters, which are at least {tokens} tokens, and the context window "
                f"has {context_window}; send less, or raise limits.context if the model allows more"
            )

    def sampling(self, of_profile: Sampling) -> Sampling:
        """How the answer is sampled: an edit greedily and without a penalty on copies, unless the request says more."""
        for_copies = replace(
            of_profile, temperature=0.0, repetition_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0
        )
        chosen = for_copies if self.task in EDIT_TASKS else of_profile
        own = {"temperature": self.temperature, "seed": self.seed}
        return replace(chosen, **{name: value for name, value in own.items() if value is not None})
