"""OpenAI's `/v1/responses`: a body to a request, an answer to a response or its events. Knows no network and no model.

The server stores nothing, so a request has the whole conversation in its `input`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from specchat.chat.events import PrefillProgress, ThinkingDelta, ToolCallDelta
from specchat.chat.tools import ANY_TOOL, Tool, ToolCall, ToolResult
from specchat.host.protocol import new_id
from specchat_serve.answer import Answer, Delta
from specchat_serve.api_errors import ApiError, RequestError
from specchat_serve.engine_request import (
    ASSISTANT,
    SYSTEM,
    USER,
    AnswerOptions,
    Message,
    build_engine_request,
    content_text,
)
from specchat_serve.json_fields import (
    FORMAT_FIELDS,
    REPETITION_DETECTION,
    SAMPLING_FIELDS,
    STRUCTURED_OUTPUTS,
    Body,
    Border,
    JsonObject,
    checked_body,
    parse_format,
    parse_message_role,
)
from specchat_serve.llama_server_objects import (
    PROMPT_PROGRESS,
    RETURN_PROGRESS,
    TIMINGS,
    TIMINGS_PER_TOKEN,
    PromptProgress,
    timings,
)
from specchat_serve.openai_chat import ROLES, SILENT_FIELDS
from specchat_serve.replies import EVENT_STREAM, TranslatedRequest, sse_comment, sse_event, translated
from specchat_serve.token_logprobs import TOP_LOGPROBS, checked_count, token_objects
from specchat_serve.tool_fields import (
    NAMESPACE,
    PARALLEL,
    TOOL_CHOICE,
    TOOLS,
    CallForm,
    custom_arguments,
    custom_input,
    leave_out_tool,
    optional_tools,
    parse_call_id,
    parse_custom,
    parse_function,
    parse_openai_tools,
    read_name,
)

INPUT, INCLUDE = "input", "include"
WITH_LOGPROBS = "message.output_text.logprobs"  # what a client includes for the probabilities of the text
ITEM_REFERENCE = "item_reference"
MESSAGE, REASONING = "message", "reasoning"  # types of items
FUNCTION_CALL, CUSTOM_CALL = "function_call", "custom_tool_call"
CALL_OUTPUTS = ("function_call_output", "custom_tool_call_output")
PART_TYPES = {MESSAGE: "output_text", REASONING: "reasoning_text"}
ITEM_PREFIXES = {MESSAGE: "msg", REASONING: "rs", FUNCTION_CALL: "fc", CUSTOM_CALL: "ctc"}
ARGUMENTS, CUSTOM_INPUT = "response.function_call_arguments", "response.custom_tool_call_input"  # names of events
IN_PROGRESS, COMPLETED, INCOMPLETE, FAILED = "in_progress", "completed", "incomplete", "failed"
FORMAT_HINT = "the type of the format must be text, json_object, or json_schema with a schema"
STORES_NOTHING = "this server stores no responses; send the whole conversation as input"
BORDER = Border(
    used=frozenset([
        INPUT, "instructions", "stream", "max_output_tokens", "temperature", *SAMPLING_FIELDS, "seed", "stop",
        REPETITION_DETECTION, "text", REASONING, TOOLS, TOOL_CHOICE, PARALLEL, *FORMAT_FIELDS, STRUCTURED_OUTPUTS,
        RETURN_PROGRESS, TIMINGS_PER_TOKEN, TOP_LOGPROBS, INCLUDE,
    ]),
    refused={
        "previous_response_id": ((), STORES_NOTHING),
        "conversation": ((), STORES_NOTHING),
        "background": ((False,), STORES_NOTHING),
        "prompt": ((), "stored prompts are not supported; send instructions and input"),
    },
    left_out={
        "truncation": "a conversation that is too long is an error; send less",
    },
    silent=SILENT_FIELDS | {"stream_options"},
)  # fmt: skip


@dataclass
class ResponseReply:
    """`given` has the fields of the request that a response repeats."""

    model: str
    answer: Answer
    given: JsonObject
    forms: Mapping[str, CallForm] = field(default_factory=dict[str, CallForm])  # of tools that are no plain functions
    tells_timings: bool = False  # with every piece of the text
    top_logprobs: int = 0  # how many likely tokens stand beside each token, where the answer keeps its tokens
    content_type: str = EVENT_STREAM
    id: str = field(default_factory=lambda: f"resp_{new_id()}")
    item_id: str = field(default_factory=new_id)
    created_at: int = field(default_factory=lambda: int(time.time()))
    _sequence_number: int = 0
    _sent_item: JsonObject = field(default_factory=dict[str, Any])  # the item that is being sent, as it began
    _item_count: int = 0
    _prompt_progress: PromptProgress = field(default_factory=PromptProgress)
    _logprobs: list[JsonObject] = field(default_factory=list[JsonObject])  # of the text until now

    def begin(self) -> bytes:
        started = self._response(IN_PROGRESS, [])
        return self._event("response.created", response=started) + self._event("response.in_progress", response=started)

    def progress(self, prefill: PrefillProgress) -> bytes:
        """What is read of the prompt, in events of an answer that has no text."""
        told = self._prompt_progress.on_event(prefill)
        started = self._response(IN_PROGRESS, [])
        return b"".join(self._event("response.in_progress", response=started, **{PROMPT_PROGRESS: it}) for it in told)

    def delta(self, delta: Delta) -> bytes:
        if isinstance(delta, ToolCallDelta):
            begun = ToolCall(delta.id, delta.name, "")  # its first piece, and the only one with a name
            opened = self._open_item(self._call_item(begun, IN_PROGRESS)) if delta.name else b""
            if not delta.arguments or self._sent_item["type"] == CUSTOM_CALL:  # an input is known at its end
                return opened
            return opened + self._item_event(f"{ARGUMENTS}.delta", delta=delta.arguments)
        if isinstance(delta, ThinkingDelta):
            opened = self._open_item(self._empty_item(REASONING))
            return opened + self._part_event("response.reasoning_text.delta", delta=delta.text)
        opened = self._open_item(self._empty_item(MESSAGE))
        speed = {TIMINGS: timings(self.answer)} if self.tells_timings else {}
        return opened + self._part_event(
            "response.output_text.delta", delta=delta.text, logprobs=self._new_logprobs(), **speed
        )

    def sign_of_life(self, stage: str) -> bytes:
        return sse_comment(stage)

    def end(self) -> bytes:
        whole = self.whole()
        return b"".join([
            b"" if self.answer.tool_calls else self._open_item(self._empty_item(MESSAGE)),
            self._close_item(whole["output"][-1]),
            self._event(f"response.{whole['status']}", response=whole, timings=timings(self.answer)),
        ])  # fmt: skip

    def failure(self, api_error: ApiError) -> bytes:
        error = {"code": "server_error", "message": api_error.message}
        return self._event(
            "response.failed", response=self._response(FAILED, self._output(INCOMPLETE)) | {"error": error}
        )

    def whole(self) -> JsonObject:
        self._new_logprobs()
        status = INCOMPLETE if self.answer.is_truncated else COMPLETED
        details = {"reason": "max_output_tokens"} if self.answer.is_truncated else None
        return self._response(status, self._output(status)) | {"incomplete_details": details, "usage": self._usage()}

    def _output(self, status: str) -> list[JsonObject]:
        """All items; only the last one may be incomplete."""
        answer, items = self.answer, list[JsonObject]()
        if answer.thinking:
            items.append(self._item(REASONING))
        if answer.text or not answer.tool_calls:
            items.append(self._item(MESSAGE))
        items += [self._call_item(call, COMPLETED) for call in answer.tool_calls]
        return [*items[:-1], {**items[-1], "status": status}]

    def _open_item(self, item: JsonObject) -> bytes:
        """The events between the last item and this one; none when it is open."""
        if self._sent_item.get("id") == item["id"]:
            return b""
        sent = [each for each in self._output(COMPLETED) if each["id"] == self._sent_item.get("id")]
        closed = b"".join(map(self._close_item, sent))
        self._sent_item, self._item_count = item, self._item_count + 1
        added = self._event("response.output_item.added", output_index=self._output_index, item=item)
        if item["type"] in (FUNCTION_CALL, CUSTOM_CALL):
            return closed + added
        return closed + added + self._part_event("response.content_part.added", part=_part(item["type"], ""))

    def _close_item(self, item: JsonObject) -> bytes:
        if item["type"] == FUNCTION_CALL:
            last = self._item_event(f"{ARGUMENTS}.done", arguments=item["arguments"], name=item["name"])
        elif item["type"] == CUSTOM_CALL:
            last = self._item_event(f"{CUSTOM_INPUT}.delta", delta=item["input"])
            last += self._item_event(f"{CUSTOM_INPUT}.done", input=item["input"])
        else:
            kind, (part,) = item["type"], item["content"]
            logprobs = {"logprobs": part["logprobs"]} if kind == MESSAGE else {}
            last = self._part_event(f"response.{PART_TYPES[kind]}.done", text=part["text"], **logprobs)
            last += self._part_event("response.content_part.done", part=part)
        return last + self._event("response.output_item.done", output_index=self._output_index, item=item)

    @property
    def _output_index(self) -> int:
        return self._item_count - 1

    def _item(self, kind: str) -> JsonObject:
        text = self.answer.thinking if kind == REASONING else self.answer.text
        return {**self._empty_item(kind), "status": COMPLETED, "content": [_part(kind, text, self._logprobs)]}

    def _new_logprobs(self) -> list[JsonObject]:
        """Of the tokens of the text that no piece has had; none for a client that wants none."""
        new = token_objects(self.answer.new_tokens(), self.top_logprobs) if self.answer.keeps_tokens else []
        self._logprobs += new
        return new

    def _empty_item(self, kind: str) -> JsonObject:
        own = {"role": "assistant"} if kind == MESSAGE else {"summary": []}
        return {
            "id": f"{ITEM_PREFIXES[kind]}_{self.item_id}",
            "type": kind,
            "status": IN_PROGRESS,
            "content": [],
            **own,
        }

    def _call_item(self, call: ToolCall, status: str) -> JsonObject:
        form = self.forms.get(call.name, CallForm(call.name))
        kind = CUSTOM_CALL if form.is_custom else FUNCTION_CALL
        given = {"input": custom_input(call.arguments)} if form.is_custom else {"arguments": call.arguments}
        group = {"namespace": form.namespace} if form.namespace else {}
        return {
            "id": f"{ITEM_PREFIXES[kind]}_{call.id}", "type": kind, "status": status, "call_id": call.id,
            "name": form.name, **group, **given,
        }  # fmt: skip

    def _response(self, status: str, output: list[JsonObject]) -> JsonObject:
        return {
            "id": self.id, "object": "response", "created_at": self.created_at, "status": status, "error": None,
            "incomplete_details": None, "model": self.model, "output": output, "usage": None, "background": False,
            "previous_response_id": None, "store": False, "truncation": "disabled", **self.given,
        }  # fmt: skip

    def _usage(self) -> JsonObject:
        totals = self.answer.totals
        return {
            "input_tokens": totals.prompt_tokens,
            "input_tokens_details": {"cached_tokens": totals.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": totals.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": totals.thinking_tokens},
            "total_tokens": totals.prompt_tokens + totals.completion_tokens,
            "specchat": self.answer.speculation_stats(),
        }

    def _part_event(self, name: str, **fields: Any) -> bytes:
        return self._item_event(name, content_index=0, **fields)

    def _item_event(self, event: str, **fields: Any) -> bytes:
        return self._event(event, item_id=self._sent_item["id"], output_index=self._output_index, **fields)

    def _event(self, event_type: str, **fields: Any) -> bytes:
        event = sse_event({"type": event_type, "sequence_number": self._sequence_number, **fields}, event_type)
        self._sequence_number += 1
        return event


def translate_response(fields: JsonObject, served_models: Sequence[str]) -> TranslatedRequest:
    """A body of `/v1/responses`; RequestError for a wrong or unsupported field."""
    body = checked_body(fields, served_models, BORDER)
    top_logprobs = checked_count(body.number(TOP_LOGPROBS, int) or 0, TOP_LOGPROBS)
    text_settings, include = body.object("text"), body.get(INCLUDE)
    options = AnswerOptions(
        max_tokens=body.number("max_output_tokens", int),
        seed=body.number("seed", int),
        temperature=body.number("temperature"),
        stop=body.stop(),
        answer_format=parse_format(text_settings.object("format"), "text", FORMAT_HINT) or body.form_of_other_servers(),
        sampling=body.sampling(),
        thinking="off" if body.object("reasoning").get("effort") == "none" else None,
        tool_options=parse_openai_tools(body, _parse_tools(body)),
        wants_probabilities=top_logprobs > 0 or (isinstance(include, list) and WITH_LOGPROBS in include),
    )
    instructions = body.text("instructions")
    request = build_engine_request([Message(SYSTEM, instructions), *_parse_input(body)], options, INPUT)
    given: JsonObject = {
        "instructions": instructions or None,
        "max_output_tokens": options.max_tokens,
        "metadata": body.object("metadata"),
        "parallel_tool_calls": options.tool_options.is_parallel,
        "temperature": options.temperature,
        "text": text_settings or {"format": {"type": "text"}},
        "tool_choice": body.get(TOOL_CHOICE) or ANY_TOOL,
        "tools": optional_tools(body),
        "top_p": body.get("top_p"),
        TOP_LOGPROBS: top_logprobs,
    }
    parallel = options.tool_options.is_parallel
    answer = Answer(
        request.request.answer_prefix, is_parallel=parallel, keeps_tokens=options.wants_probabilities,
        notices=body.notices,
    )  # fmt: skip
    forms, tells_timings = options.tool_options.forms, body.flag(TIMINGS_PER_TOKEN)
    return translated(
        body, ResponseReply(served_models[0], answer, given, forms, tells_timings, top_logprobs), [request]
    )


def _parse_input(body: Body) -> Iterator[Message]:
    if isinstance(text := body.get(INPUT), str):
        yield Message(USER, text)
        return
    items = body.filled_list(INPUT, "a text, or a list of messages that ends with one of the user")
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise RequestError(f"{INPUT}[{at}]: an item is an object with a role and a content", INPUT)
        item = cast("JsonObject", item)
        kind = item.get("type") or MESSAGE
        if kind in (MESSAGE, FUNCTION_CALL, CUSTOM_CALL, *CALL_OUTPUTS):
            yield _parse_item(item, kind, f"{INPUT}[{at}]")
        elif kind == ITEM_REFERENCE:
            raise RequestError(f"{INPUT}[{at}]: {STORES_NOTHING}", INPUT, code="unsupported_parameter")
        elif kind == REASONING:
            yield from _parse_thought(item, f"{INPUT}[{at}]")
        else:
            body.leave_out(f"{INPUT}[{at}]", f"the model does not read items of type {kind!r}")


def _parse_thought(item: JsonObject, field_path: str) -> Iterator[Message]:
    """What the model thought before its next item: all of it, else a summary; one that is encrypted has no text."""
    texts = (content_text(item.get(name), field_path, INPUT) for name in ("content", "summary"))
    if text := next(filter(None, texts), ""):
        yield Message(ASSISTANT, "", path=field_path, thinking=text)


def _parse_item(item: JsonObject, kind: str, field_path: str) -> Message:
    if kind in (FUNCTION_CALL, CUSTOM_CALL):
        return Message(ASSISTANT, "", tool_calls=(_parse_call(item, field_path),), path=field_path)
    if kind in CALL_OUTPUTS:
        return Message(USER, "", tool_results=(_parse_result(item, field_path),), path=field_path)
    _, role = parse_message_role(item, ROLES, field_path, INPUT)
    return Message(ROLES[role], content_text(item.get("content"), field_path, INPUT), path=field_path)


def _parse_call(item: JsonObject, field_path: str) -> ToolCall:
    match item:
        case {"call_id": str(call_id), "name": str(name), "arguments": str(arguments)} if call_id and name:
            return ToolCall(call_id, read_name(item), arguments)
        case {"call_id": str(call_id), "name": str(name), "input": str(text)} if call_id and name:
            return ToolCall(call_id, read_name(item), custom_arguments(text))
        case _:
            raise RequestError(f"{field_path}: a call has a call_id, a name and arguments, which are a text", INPUT)


def _parse_result(item: JsonObject, field_path: str) -> ToolResult:
    call_id = parse_call_id(item, "call_id", "an output", field_path, INPUT)
    return ToolResult(call_id, "", content_text(item.get("output"), field_path, INPUT))


def _parse_tools(body: Body) -> Iterator[tuple[Tool, CallForm]]:
    for at, tool in enumerate(optional_tools(body)):
        yield from _parse_tool(body, tool, f"{TOOLS}[{at}]")


def _parse_tool(body: Body, tool: Any, field_path: str, namespace: str = "") -> Iterator[tuple[Tool, CallForm]]:
    match tool:
        case {"type": "function"}:
            yield parse_function(cast("JsonObject", tool), field_path, namespace)
        case {"type": "custom"}:
            yield parse_custom(cast("JsonObject", tool), field_path, namespace)
        case {"type": "namespace", "name": str(name), "tools": list(tools)} if name and not namespace:
            for at, each in enumerate(cast("list[Any]", tools)):
                yield from _parse_tool(body, each, f"{field_path}.{TOOLS}[{at}]", name)
        case {"type": str(kind)} if kind != NAMESPACE:
            leave_out_tool(body, kind, field_path)
        case _:
            raise RequestError(f"{field_path}: a tool is an object with a type and a name", TOOLS)


def _part(kind: str, text: str, logprobs: Sequence[JsonObject] = ()) -> JsonObject:
    own = {"annotations": [], "logprobs": [*logprobs]} if kind == MESSAGE else {}
    return {"type": PART_TYPES[kind], "text": text, **own}
