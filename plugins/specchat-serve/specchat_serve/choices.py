"""Several answers in one reply: what completions of OpenAI and of llama-server share. Knows no network.

The answers are computed one after the other, each in the place of the last: the prompt is computed once. They differ by
their seeds.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from secrets import randbits
from typing import ClassVar

from specchat.chat.events import PrefillProgress
from specchat.chat.fim_request import FimRequest
from specchat.host.protocol import new_id
from specchat_serve.answer import Answer
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.engine_request import EngineRequest
from specchat_serve.json_fields import Body, JsonObject
from specchat_serve.llama_server_objects import PROMPT_PROGRESS, TIMINGS, PromptProgress, timings
from specchat_serve.openai_objects import DONE_EVENT, FINGERPRINT, completion_usage, error_body
from specchat_serve.replies import EVENT_STREAM, sse_comment, sse_event

MAX_CHOICES = 128  # as OpenAI's
SEED_BITS = 31


def parse_choice_count(body: Body, name: str = "n") -> int:
    """How many answers a prompt gets."""
    count = body.number(name, int)
    count = 1 if count is None else count
    if not 1 <= count <= MAX_CHOICES:
        raise RequestError(f"{name}: give a number from 1 to {MAX_CHOICES}", name)
    if body.get("best_of") not in (None, 1, count):
        raise RequestError("best_of: the server does not choose among answers; give n", "best_of")
    return count


def check_answer_count(prompts: Sequence[object], count: int) -> None:
    """RequestError for too many answers to all prompts."""
    if len(prompts) * count > MAX_CHOICES:
        raise RequestError(f"prompt: a request has at most {MAX_CHOICES} answers", "prompt")


def with_other_seeds(request: EngineRequest | FimRequest, count: int) -> Iterator[EngineRequest | FimRequest]:
    """The request so many times; each has the next seed, beginning with its own one or with one that is drawn."""
    if count == 1:
        yield request
        return
    own = request.sampling.seed if isinstance(request, FimRequest) else request.request.seed
    first = randbits(SEED_BITS) if own is None else own
    for seed in range(first, first + count):
        if isinstance(request, FimRequest):
            yield replace(request, sampling=replace(request.sampling, seed=seed))
        else:
            yield replace(request, request=replace(request.request, seed=seed))


@dataclass
class AnswersReply(ABC):
    """Server-sent events of answers by their index. The first one without an end is the one that comes."""

    model: str
    answers: Sequence[Answer]
    content_type: str = field(default=EVENT_STREAM, init=False)
    _prompt_progress: PromptProgress = field(default_factory=PromptProgress, init=False)

    @property
    def index(self) -> int:
        return next((at for at, answer in enumerate(self.answers) if answer.finished is None), len(self.answers) - 1)

    @property
    def answer(self) -> Answer:
        return self.answers[self.index]

    def sign_of_life(self, stage: str) -> bytes:
        return sse_comment(stage)

    def failure(self, api_error: ApiError) -> bytes:
        return sse_event(error_body(api_error))

    def progress(self, prefill: PrefillProgress) -> bytes:
        """What is read of the prompt, in chunks without a text."""
        chunk = self.empty_chunk()
        return b"".join(sse_event({**chunk, PROMPT_PROGRESS: it}) for it in self._prompt_progress.on_event(prefill))

    @abstractmethod
    def empty_chunk(self) -> JsonObject:
        """A piece of the answer that comes, without a text."""


@dataclass
class ChoicesReply(AnswersReply):
    """The choices of OpenAI."""

    includes_usage: bool = False  # in the last chunk of a stream
    top_logprobs: int = 0  # how many other tokens stand beside each token
    answers_per_prompt: int = 1
    tells_timings: bool = False  # with every piece of a text
    prompt: str | None = None  # as the model reads it, for a client that wants to see it
    number: str = field(default_factory=new_id)
    created_at: int = field(default_factory=lambda: int(time.time()))
    id_prefix: ClassVar[str]
    object_type: ClassVar[str]
    chunk_type: ClassVar[str]

    def end(self) -> bytes:
        """The last chunks of all answers, and one with the usage if the client wants it."""
        chunks = [sse_event(chunk) for index in range(len(self.answers)) for chunk in self.last_chunks(index)]
        usage = {**self.common_fields(self.chunk_type), "choices": [], **self._usage()}
        return b"".join([*chunks, sse_event(usage) if self.includes_usage else b"", DONE_EVENT])

    def whole(self) -> JsonObject:
        choices = [self.whole_choice(index) for index in range(len(self.answers))]
        return {**self.common_fields(self.object_type), "choices": choices, **self._usage()}

    @abstractmethod
    def last_chunks(self, index: int) -> Iterable[JsonObject]:
        """What stands behind the text of an answer in a stream."""

    @abstractmethod
    def whole_choice(self, index: int) -> JsonObject:
        """An answer that is no stream."""

    def with_timings(self, chunk: JsonObject) -> JsonObject:
        """A chunk of the text, with its speed for a client that wants it."""
        return {**chunk, TIMINGS: timings(self.answer)} if self.tells_timings else chunk

    def chunk(self, choice: JsonObject) -> JsonObject:
        usage: JsonObject = {"usage": None} if self.includes_usage else {}
        return {**self.common_fields(self.chunk_type), "choices": [choice], **usage}

    def common_fields(self, object_type: str) -> JsonObject:
        return {
            "id": f"{self.id_prefix}-{self.number}", "object": object_type, "created": self.created_at,
            "model": self.model, "system_fingerprint": FINGERPRINT,
        }  # fmt: skip

    def _usage(self) -> JsonObject:
        """The counts of all answers, and the speed of one."""
        speed = {TIMINGS: timings(self.answer)} if len(self.answers) == 1 else {}
        shown = {} if self.prompt is None else {"__verbose": {"prompt": self.prompt}}
        return {"usage": completion_usage(self.answers, self.answers_per_prompt), **speed, **shown}
