"""What an API asks of the engine: an answer after a conversation, or a completion. Knows no API and no model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specchat.chat.fim_request import FimRequest
from specchat.chat.request import AnswerFormat, Request
from specchat.chat.transcript import Exchange
from specchat.serve.api_errors import RequestError
from specchat.serve.json_fields import JsonObject

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
MESSAGE_SEPARATOR = "\n\n"  # between merged messages
GREETING = "Hello"  # stands before a conversation that the assistant begins: chat templates want the user first


@dataclass(frozen=True)
class SessionSettings:
    """The system prompt and the sampling. The engine needs another session for other settings."""

    system_prompt: str = ""  # "": the one of the profile
    sampling: tuple[tuple[str, float], ...] = ()

    def overrides(self) -> JsonObject:
        system_prompt = {"prompt.system": self.system_prompt} if self.system_prompt else {}
        return system_prompt | {f"sampling.{name}": value for name, value in self.sampling}


@dataclass(frozen=True)
class ConversationHistory:
    exchanges: tuple[Exchange, ...] = ()
    settings: SessionSettings = SessionSettings()


@dataclass(frozen=True)
class EngineRequest:
    request: Request
    history: ConversationHistory = ConversationHistory()


@dataclass(frozen=True)
class CompletionRequest:
    """A text to continue, or a gap to fill, without a conversation. A stop text cuts the completion."""

    fim_request: FimRequest
    stop: tuple[str, ...] = ()

    def cut(self, text: str) -> str:
        """The text before the first stop text."""
        ends = [end for each in self.stop if (end := text.find(each)) >= 0]
        return text[: min(ends, default=len(text))]


@dataclass(frozen=True)
class AnswerOptions:
    """How to answer; None is what the profile says."""

    max_tokens: int | None = None
    seed: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    answer_format: AnswerFormat | None = None
    sampling: tuple[tuple[str, float], ...] = ()
    thinking: str | None = None  # on, off


@dataclass(frozen=True)
class Message:
    role: str  # SYSTEM, USER or ASSISTANT
    text: str


def build_engine_request(messages: Iterable[Message], options: AnswerOptions, field: str) -> EngineRequest:
    """The request for the answer that follows these messages; RequestError names `field`.

    Consecutive messages of one side become one message. A system message after the beginning counts as the user's. A
    last message of the assistant is the beginning of the answer.
    """
    system: list[str] = []
    sides: list[list[str]] = []  # texts of user and assistant, alternating
    for message in messages:
        if message.role == SYSTEM and not sides:
            system.append(message.text)
            continue
        side = int(message.role == ASSISTANT)
        if side and not sides:
            sides.append([GREETING])
        if not sides or len(sides) % 2 == side:
            sides.append([])
        sides[-1].append(message.text)
    texts = [MESSAGE_SEPARATOR.join(side) for side in sides]
    answer_prefix = texts.pop() if texts and len(texts) % 2 == 0 else ""
    _check_texts(texts, field)
    if answer_prefix and options.answer_format:
        raise RequestError(f"{field}: a begun answer cannot have a format; leave one of them out", field)
    request = Request(
        texts[-1], max_tokens=options.max_tokens, seed=options.seed, temperature=options.temperature,
        stop=options.stop, answer_format=options.answer_format, answer_prefix=answer_prefix,
        thinking=options.thinking,
    )  # fmt: skip
    exchanges = tuple(Exchange(user, answer) for user, answer in zip(texts[:-1:2], texts[1::2], strict=True))
    settings = SessionSettings(MESSAGE_SEPARATOR.join(filter(None, system)), options.sampling)
    return EngineRequest(request, ConversationHistory(exchanges, settings))


def content_text(content: Any, field_path: str, field: str, part_types: Sequence[str] = ("text",)) -> str:
    """The text of a message: a text, or a list of parts, of which each is a line."""
    match content:
        case str():
            return content
        case None:
            return ""
        case list():
            return "\n".join(_part_text(part, field_path, field, part_types) for part in cast("list[Any]", content))
        case _:
            raise RequestError(f"{field_path}: content must be a text or a list of parts", field)


def _part_text(part: Any, field_path: str, field: str, part_types: Sequence[str]) -> str:
    match part:
        case {"type": kind, "text": str(text)} if kind in part_types:
            return text
        case {"type": kind}:
            message = f"{field_path}: parts of type {kind!r} are not supported, only text"
            raise RequestError(message, field, code="unsupported_content")
        case _:
            raise RequestError(f"{field_path}: a part is an object with a type and a text", field)


def _check_texts(texts: Sequence[str], field: str) -> None:
    if not texts:
        raise RequestError(f"{field}: there is no message of the user", field)
    if not all(text.strip() for text in texts[::2]):
        raise RequestError(f"{field}: a message of the user is empty", field)
