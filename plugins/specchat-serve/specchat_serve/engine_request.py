"""What an API asks of the engine: an answer after a conversation. Knows no API and no model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, cast

from specchat.chat.request import AnswerFormat, Request, TokenBias
from specchat.chat.tools import ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat_serve.api_errors import RequestError
from specchat_serve.tool_fields import ToolOptions, with_keys_in_order

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
MESSAGE_SEPARATOR = "\n\n"  # between merged messages
TEXT_PARTS = ("text", "input_text", "output_text", "reasoning_text", "summary_text")  # kinds of parts of a message
GREETING = "Hello"  # stands before a conversation that the assistant begins: chat templates want the user first


@dataclass(frozen=True)
class EngineRequest:
    """A request after these turns; `changes` are keys of the profile that the client sets."""

    request: Request
    turns: tuple[Turn, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class AnswerOptions:
    """How to answer; None is what the profile says."""

    max_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    answer_format: AnswerFormat | None = None
    sampling: Mapping[str, float] = field(default_factory=dict[str, float])  # by the keys of the profile
    thinking: str | None = None  # on, off
    tool_options: ToolOptions = ToolOptions()
    wants_probabilities: bool = False
    logit_bias: tuple[TokenBias, ...] = ()


@dataclass(frozen=True)
class Message:
    """A message of one side. Results of tools are on the side of the user; a call id of "" is that of the next call."""

    role: str  # SYSTEM, USER or ASSISTANT
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    path: str = ""  # in the body, for an error
    thinking: str = ""  # before a text of the assistant; the chat template decides whether the model reads it again


@dataclass
class _Side:
    """Consecutive messages of one side, which count as one."""

    messages: list[Message] = field(default_factory=list[Message])

    @property
    def path(self) -> str:
        """Of its last message."""
        return self.messages[-1].path

    @property
    def text(self) -> str:
        return MESSAGE_SEPARATOR.join(message.text for message in self.messages if message.text)

    @property
    def thinking(self) -> str:
        return MESSAGE_SEPARATOR.join(message.thinking for message in self.messages if message.thinking)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(chain.from_iterable(message.tool_calls for message in self.messages))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple(chain.from_iterable(message.tool_results for message in self.messages))


def build_engine_request(messages: Iterable[Message], options: AnswerOptions, field: str) -> EngineRequest:
    """The request for the answer that follows these messages; RequestError names `field`.

    Consecutive messages of one side become one message. A system message after the beginning counts as the user's. A
    last message of the assistant is the beginning of the answer. Each call has one result, before the next answer.
    """
    system, sides = _split_sides(messages)
    begun = sides.pop() if sides and len(sides) % 2 == 0 else _Side()
    if begun.tool_calls:
        raise RequestError(f"{begun.path}: the call {begun.tool_calls[0].id!r} at the end has no result", field)
    _check_sides(sides, options, begun.text, field)
    turns: list[Turn] = []
    calls: tuple[ToolCall, ...] = ()
    for asked, answered in zip(sides[:-1:2], sides[1::2], strict=True):
        results = _results_in_order(asked, calls, field)
        calls = tuple(with_keys_in_order(call, options.tool_options.tools) for call in answered.tool_calls)
        turn = Turn(asked.text, answer=answered.text, tool_results=results, tool_calls=calls)
        turns.append(replace(turn, thinking=answered.thinking))
    request = Request(
        sides[-1].text, max_tokens=options.max_tokens, seed=options.seed, temperature=options.temperature,
        stop=options.stop, answer_format=options.answer_format, answer_prefix=begun.text, thinking=options.thinking,
        tools=options.tool_options.tools, tool_choice=options.tool_options.choice,
        tool_results=_results_in_order(sides[-1], calls, field), wants_probabilities=options.wants_probabilities,
        logit_bias=options.logit_bias,
    )  # fmt: skip
    system_prompt = {"prompt.system": system} if system else {}
    return EngineRequest(request, tuple(turns), {**system_prompt, **options.sampling})


def _split_sides(messages: Iterable[Message]) -> tuple[str, list[_Side]]:
    """The system prompt, and the sides of user and assistant, alternating."""
    system: list[str] = []
    sides: list[_Side] = []
    for message in messages:
        if message.role == SYSTEM and not sides:
            system.append(message.text)
            continue
        side = int(message.role == ASSISTANT)
        if side and not sides:
            sides.append(_Side([Message(USER, GREETING)]))
        if not sides or len(sides) % 2 == side:
            sides.append(_Side())
        sides[-1].messages.append(message)
    if system and not sides:  # alone, it is the question
        sides, system = [_Side([Message(USER, MESSAGE_SEPARATOR.join(system))])], []
    return MESSAGE_SEPARATOR.join(filter(None, system)), sides


def _check_sides(sides: Sequence[_Side], options: AnswerOptions, answer_prefix: str, field: str) -> None:
    if not sides:
        raise RequestError(f"{field}: there is no message of the user", field)
    if empty := next((side for side in sides[::2] if not side.text.strip() and not side.tool_results), None):
        path = empty.messages[0].path if empty.messages else field
        raise RequestError(f"{path}: a message of the user is empty", field)
    if answer_prefix and options.answer_format:
        raise RequestError(f"{field}: a begun answer cannot have a format; leave one of them out", field)


def _results_in_order(side: _Side, calls: Sequence[ToolCall], field: str) -> tuple[ToolResult, ...]:
    """The results of all these calls, in the order of the calls and with their ids and names."""
    waiting = list(calls)
    if len({call.id for call in calls}) < len(calls):
        raise RequestError(f"{side.path}: it follows two calls with the same id", field)
    result_by_call: dict[str, ToolResult] = {}
    for result in side.tool_results:
        call = next((each for each in waiting if _is_result_of(result, each)), None)
        if call is None:
            named = repr(result.call_id or result.name)
            path = next(each.path for each in reversed(side.messages) if result in each.tool_results)
            message = (
                f"{path}: the result of {named} belongs to no call of the message before it, or to one that has one"
            )
            raise RequestError(message, field)
        waiting.remove(call)
        result_by_call[call.id] = replace(result, call_id=call.id, name=call.name)
    if waiting:
        missing = ", ".join(repr(call.id) for call in waiting)
        raise RequestError(f"{side.path}: there is no result of {missing}; each call needs one after it", field)
    return tuple(result_by_call[call.id] for call in calls)


def _is_result_of(result: ToolResult, call: ToolCall) -> bool:
    return result.call_id == call.id if result.call_id else result.name in ("", call.name)


def thought_text(message: Mapping[str, Any], *names: str) -> str:
    """What the model thought before a message: the first of these fields that is a text. Other values are no error."""
    return next((text for name in names if isinstance(text := message.get(name), str) and text), "")


def content_text(content: Any, field_path: str, field: str) -> str:
    """The text of a message: a text, or a list of parts, of which each is a line."""
    match content:
        case str():
            return content
        case None:
            return ""
        case list():
            return "\n".join(_part_text(part, field_path, field) for part in cast("list[Any]", content))
        case _:
            raise RequestError(f"{field_path}: content must be a text or a list of parts", field)


def _part_text(part: Any, field_path: str, field: str) -> str:
    match part:
        case str():
            return part
        case {"type": kind, "text": str(text)} if kind in TEXT_PARTS:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": kind}:
            message = f"{field_path}: parts of type {kind!r} are not supported, only text"
            raise RequestError(message, field, code="unsupported_content")
        case _:
            raise RequestError(f"{field_path}: a part is an object with a type and a text", field)
