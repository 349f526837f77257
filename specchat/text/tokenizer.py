"""Text to tokens and back, from the files of a model's folder, without transformers.

`tokenizer.json` has the vocabulary, `chat_template.jinja` or `tokenizer_config.json` the chat template;
`generation_config.json`, `config.json` and the template define the tokens that end an answer.

Text of a message never becomes a control token. If a message contains the text of one (for example "<|end|>"), `render`
splits it with a mark, U+FDD0: a noncharacter that Unicode reserves for internal use, and that is first removed from
every message. `encode` splits the rendered text at the marks and encodes the parts separately. Trimming and splitting
inside a template still work, and a text without control tokens is encoded as transformers encodes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from threading import Lock, Thread
from typing import Any, cast

import tokenizers

from specchat.errors import ModelError
from specchat.text.chat_template import NO_OPTIONS, ChatTemplate, TemplateError
from specchat.text.detokenize import Detokenizer
from specchat.text.thinking import ThinkingFormat, find_thinking_format
from specchat.text.token_bytes import TokenDecoder, read_token_decoder
from specchat.text.tool_formats import HERMES, PROBE_ARGUMENTS, PROBE_NAME, ToolFormat, find_tool_format

SPLIT_MARK = "\ufdd0"
PIECE_CHARACTERS = 32 * 2**10  # about a tenth of a second
MAX_VOCABULARY = 2**24
ALWAYS_QUICK_CHARACTERS = 16  # the engine of regular expressions gives up on one place after less than a second
ENCODE_SECONDS = 20.0
SLOWEST_CHARACTERS_PER_SECOND = 10_000  # a core computes a million
MAX_TOKENS_ACROSS_BORDER = 8
MATCHES_NOTHING = re.compile(r"(?!)")
AUTO_THINKING = "auto"  # whether the model thinks is left to its chat template
THINKING_SWITCHES = ("enable_thinking", "thinking")  # variables of chat templates: of most families, of DeepSeek
THINKING_FIELDS = {  # where chat templates look for the thinking of an earlier answer
    "reasoning_content": re.compile(r"\breasoning_content\b"),
    "thinking": re.compile(r"""\bmessage\.thinking\b|['"]thinking['"]\s*(?:\]|in message)"""),
}

NO_MARKERS = frozenset[int]()

Message = Mapping[str, Any]  # role, content, and what else it has: thinking, tool_calls, tool_call_id, name


class Tokenizer:
    """The tokenizer of one model. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settings = _tokenizer_settings(folder)
        self._backend = _load_backend(folder / "tokenizer.json")
        self._backend_lock = Lock()  # encode_special_tokens is a state of the backend
        self._is_stuck = False
        self.vocabulary: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        self.vocab_size = _vocabulary_size(self.vocabulary, folder)
        added_token_ids = self._backend.get_added_tokens_decoder()
        self.added = frozenset(added_token_ids)
        self.special_token_ids = frozenset(index for index, token in added_token_ids.items() if token.special)
        self._control_token_pattern = _any_of(token.content for token in added_token_ids.values() if token.special)
        self._token_decoder = _load_token_decoder(self._backend, folder)
        self._bytes_of_token: dict[int, bytes] = {}  # all of them would take a tenth of a second before the first token
        self.strips_first_space = self._token_decoder.strips_first_space
        self.template = _load_template(folder, self._settings)
        self.stop_token_ids = frozenset(self._declared_stop_ids() | self._template_stop_ids())

    def __str__(self) -> str:
        return str(self.folder)

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """The tokens of a text. "<|end|>" becomes a control token only with `parse_special`, for rendered templates."""
        if not parse_special:
            return self._encode(text, parse_special=False)
        first, *others = text.split(SPLIT_MARK)
        ids = self._encode(first, parse_special=True)
        for part in others:
            ids += self._encode_continuation(part)
        return ids

    def count_in_pieces(self, text: str) -> Iterator[int]:
        """The least number of tokens up to the end of each piece of a long text; nothing for a short one.

        A word across the border of two pieces may have more tokens than it has in the text, which is allowed for.
        """
        if len(text) > PIECE_CHARACTERS:
            pieces = (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))
            yield from accumulate(max(0, len(self.encode(piece)) - MAX_TOKENS_ACROSS_BORDER) for piece in pieces)

    def encode_continuation(self, text: str) -> list[int]:
        """The tokens of the rest of a rendered template, after tokens that are encoded already."""
        return [token for part in text.split(SPLIT_MARK) for token in self._encode_continuation(part)]

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool,
        thinking: str = AUTO_THINKING,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt of a conversation, for `encode(..., parse_special=True)`.

        An answer may have its `thinking` beside its `content`. A template that reads it gets it in a field of its own,
        or between the markers in the content, and drops it if it drops earlier thoughts.
        """
        escaped = [self._template_message(message, thinking) for message in messages]
        switch = self.thinking_switch
        options = {switch: thinking == "on"} if switch and thinking != AUTO_THINKING else NO_OPTIONS
        try:
            return self.template.render(escaped, add_generation_prompt, options, self._escape_values(tools))
        except TemplateError as error:
            raise ModelError(f"{self.folder}: its chat template refuses this conversation: {error}") from error

    def _template_message(self, message: Message, thinking: str) -> dict[str, Any]:
        fields = self._escape_values({name: value for name, value in message.items() if name != "thinking"})
        if not message.get("thinking") or self.thinking is None:
            return fields
        source = self.template.source
        if name := next((name for name, mention in THINKING_FIELDS.items() if mention.search(source)), ""):
            fields[name] = self.escape_control_tokens(message["thinking"])
        elif self.thinking.closing in source and thinking != "off":
            thought = self.escape_control_tokens(message["thinking"])
            fields["content"] = self.thinking.answer_text(thought, fields["content"])
        return fields

    def _escape_values(self, value: Any) -> Any:
        """A JSON value with every text in it escaped."""
        match value:
            case str():
                return self.escape_control_tokens(value)
            case Mapping():
                fields = cast("Mapping[str, Any]", value)
                return {self.escape_control_tokens(name): self._escape_values(each) for name, each in fields.items()}
            case list() | tuple():
                return [self._escape_values(each) for each in cast("Sequence[Any]", value)]
            case _:
                return value

    @cached_property
    def reads_tools(self) -> bool:
        """Whether the chat template tells the model which tools there are."""
        function = {"name": PROBE_NAME, "description": PROBE_NAME, "parameters": {"type": "object", "properties": {}}}
        try:
            return PROBE_NAME in self.template.render(
                [{"role": "user", "content": "question"}], True, tools=[{"type": "function", "function": function}]
            )
        except TemplateError:
            return False

    @cached_property
    def tool_format(self) -> ToolFormat:
        """How the model writes tool calls; that of Hermes for a model whose template has no tools."""
        return find_tool_format(self._render_probe_call(), self.template.source) if self.reads_tools else HERMES

    def _render_probe_call(self) -> str:
        """An answer with a tool call as the chat template renders it; "" if it refuses one."""
        call = {"type": "function", "id": "probe0000", "function": {"name": PROBE_NAME, "arguments": PROBE_ARGUMENTS}}
        answer = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "name": PROBE_NAME, "tool_call_id": "probe0000", "content": "result"}
        try:
            return self.template.render([{"role": "user", "content": "question"}, answer, result], False)
        except TemplateError:
            return ""

    @cached_property
    def thinking(self) -> ThinkingFormat | None:
        """How the model marks its thinking; None for a model that does not think."""
        return None if self.template.is_plain else find_thinking_format(self.template.source, self.vocabulary)

    @cached_property
    def thinking_switch(self) -> str:
        """The variable with which the chat template turns thinking on and off; "" if it has none."""
        return (
            next((name for name in THINKING_SWITCHES if name in self.template.variables), "") if self.thinking else ""
        )

    @cached_property
    def thinking_token_ids(self) -> frozenset[int]:
        """The markers of a thought that are tokens."""
        return self._known_tokens(self.thinking.tokens if self.thinking else ())

    @cached_property
    def tool_token_ids(self) -> frozenset[int]:
        """The markers of a tool call that are tokens."""
        return self._known_tokens(self.tool_format.tokens)

    def _known_tokens(self, tokens: Iterable[str]) -> frozenset[int]:
        return frozenset(self.vocabulary[token] for token in tokens if token in self.vocabulary)

    def generated_text(self, answer_ids: Sequence[int]) -> str:
        """The text of an answer with the markers of its thought, as `escape_answer` expects it."""
        ids = answer_ids[:-1] if answer_ids and answer_ids[-1] in self.stop_token_ids else answer_ids
        stream = self.detokenizer(shown_markers=self.thinking_token_ids)
        return stream.push(ids).text + stream.flush()

    def escape_answer(self, text: str) -> str:
        """As `escape_control_tokens`, but the markers of the thought at the beginning stay markers."""
        if self.thinking is None:
            return self.escape_control_tokens(text)
        before, marker, thought = text.partition(self.thinking.opening)
        opening = f"{before}{marker}" if marker and not before.strip() else ""
        thought, closing, answer = text.removeprefix(opening).partition(self.thinking.closing)
        return f"{opening}{self.escape_control_tokens(thought)}{closing}{self.escape_control_tokens(answer)}"

    def escape_control_tokens(self, text: str) -> str:
        """Put a mark inside every control token in a text.

        "a <|end|>" becomes "a <" + SPLIT_MARK + "|end|>", which `encode` does not parse as a control token.
        """
        text, count = text.replace(SPLIT_MARK, ""), 1
        while count:
            text, count = self._control_token_pattern.subn(
                lambda match: f"{match[0][:1]}{SPLIT_MARK}{match[0][1:]}", text
            )
        return text

    def find_stop_token(self, rendered: str, start: int) -> int | None:
        """Where the first token that ends an answer stands in a rendered prompt, from here on."""
        match = self._stop_token_pattern.search(rendered, start)
        return match.start() if match else None

    @cached_property
    def _stop_token_pattern(self) -> re.Pattern[str]:
        texts = (self.token_bytes(token).decode("utf-8", "ignore") for token in self.stop_token_ids)
        return _any_of(text for text in texts if self._control_token_pattern.fullmatch(text))

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token, possibly part of a character; empty for padding ids above the vocabulary."""
        if token not in self._bytes_of_token:
            piece = self._pieces[token] if 0 <= token < self.vocab_size else ""
            # Byte-level tokenizers store added tokens as plain text.
            is_plain = self._token_decoder.is_byte_level and token in self.added
            self._bytes_of_token[token] = piece.encode() if is_plain else self._token_decoder.piece_bytes(piece)
        return self._bytes_of_token[token]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens, without control tokens; invalid bytes become U+FFFD."""
        stream = self.detokenizer()
        return stream.push(ids).text + stream.flush()

    def detokenizer(
        self,
        stop_strings: tuple[str, ...] = (),
        *,
        is_continuation: bool = False,
        shown_markers: frozenset[int] = NO_MARKERS,
    ) -> Detokenizer:
        """A decoder of one text, or of the rest of a text, whose first space counts.

        Control tokens are hidden, except the shown markers.
        """
        hidden = self.special_token_ids - shown_markers
        return Detokenizer(
            lambda token: b"" if token in hidden else self.token_bytes(token),
            stop_strings,
            self.strips_first_space and not is_continuation,
        )

    def bytes_with_markers(self, token: int) -> bytes:
        """The bytes that a token adds to an answer, the markers of its thought among them."""
        is_hidden = token in self.special_token_ids and token not in self.thinking_token_ids
        return b"" if is_hidden else self.token_bytes(token)

    def _encode(self, text: str, parse_special: bool) -> list[int]:
        with self._backend_lock:
            if not self._is_stuck:
                self._backend.encode_special_tokens = not parse_special
            if len(text) > ALWAYS_QUICK_CHARACTERS or self._is_stuck:
                return self._encode_in_time(text)
            return self._encode_now(text)

    def _encode_in_time(self, text: str) -> list[int]:
        """Encode in a thread: a regular expression in a tokenizer.json may take for ever, and nothing can end it.

        From then on the tokenizer is of no use, because the thread holds it.
        """
        results = list[list[int] | ModelError]()
        if not self._is_stuck:
            worker = Thread(target=lambda: results.append(self._try_to_encode(text)), name="encode", daemon=True)
            worker.start()
            worker.join(ENCODE_SECONDS + len(text) / SLOWEST_CHARACTERS_PER_SECOND)
            self._is_stuck = worker.is_alive()
        if self._is_stuck:
            raise ModelError(f"{self.folder}: the regular expressions of its tokenizer take for ever on a text")
        if isinstance(results[0], ModelError):
            raise results[0]
        return results[0]

    def _try_to_encode(self, text: str) -> list[int] | ModelError:
        try:
            return self._encode_now(text)
        except ModelError as error:
            return error

    def _encode_now(self, text: str) -> list[int]:
        try:
            # `encode` keeps the interpreter lock, and a long text would stop every thread.
            return self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of Rust; it is no Exception and cannot be imported
                raise
            raise ModelError(f"{self.folder}: its tokenizer cannot split this text: {error}") from None

    def _encode_continuation(self, text: str) -> list[int]:
        """The tokens of a text that continues another: without the space that some tokenizers add at the start."""
        if not text:
            return []
        anchored = self._encode(f"\n{text}", parse_special=True)
        anchor = self._newline_tokens
        return anchored[len(anchor) :] if anchored[: len(anchor)] == anchor else self._encode(text, parse_special=True)

    @cached_property
    def _newline_tokens(self) -> list[int]:
        return self._encode("\n", parse_special=False)

    @cached_property
    def start_token_ids(self) -> list[int]:
        """The tokens with which the model expects every text to begin, for example "<s>"; none for most models."""
        with self._backend_lock:
            ids = self._backend.encode("x", add_special_tokens=True).ids
            text_ids = self._backend.encode("x", add_special_tokens=False).ids
        count = next((start for start in range(len(ids)) if ids[start : start + len(text_ids)] == text_ids), 0)
        return ids[:count]

    @cached_property
    def _pieces(self) -> list[str]:
        """The piece of every token; "" for ids that the vocabulary leaves out."""
        pieces = [""] * self.vocab_size
        for piece, token in self.vocabulary.items():
            pieces[token] = piece
        return pieces

    def _declared_stop_ids(self) -> set[int]:
        """The stop tokens in the files of the folder; generation_config.json goes before config.json."""
        generation = _read_json(self.folder / "generation_config.json", {})
        config = _read_json(self.folder / "config.json", {})
        candidates = (file.get("eos_token_id") for file in (generation, config, config.get("text_config") or {}))
        declared = next((ids for ids in candidates if ids is not None), [])
        stop_ids = {declared} if isinstance(declared, int) else set[int](declared)
        eos = self.vocabulary.get(_content(self._settings.get("eos_token")))
        return stop_ids | ({eos} if eos is not None else set())

    def _template_stop_ids(self) -> set[int]:
        """The control token that the template writes right after an answer."""
        answer = "answer"
        try:
            rendered = self.template.render(
                [{"role": "user", "content": "question"}, {"role": "assistant", "content": answer}], False
            )
        except TemplateError:
            return set()
        end = self._control_token_pattern.match(rendered.rpartition(answer)[2].lstrip())
        return {self.vocabulary[end[0]]} if end else set()


def _load_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise ModelError(f"{path.parent}: tokenizer.json is missing")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for an invalid file
        raise ModelError(f"{path}: not a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _vocabulary_size(vocabulary: Mapping[str, int], folder: Path) -> int:
    """One more than the largest token id; ModelError for an id with which a table of all tokens fills the memory."""
    largest = max(vocabulary.values(), default=-1)
    if not 0 <= largest < MAX_VOCABULARY:
        fault = f"a token has the id {largest}" if largest > 0 else "it has no tokens"
        raise ModelError(f"{folder / 'tokenizer.json'}: {fault}; a vocabulary has 1 to {MAX_VOCABULARY} tokens")
    return largest + 1


def _load_token_decoder(backend: tokenizers.Tokenizer, folder: Path) -> TokenDecoder:
    decoder = backend.decoder
    try:
        return read_token_decoder(json.loads(decoder.__getstate__()) if decoder else None)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from error


def _load_template(folder: Path, settings: Mapping[str, Any]) -> ChatTemplate:
    """The chat template of a folder; without one, the texts of messages are joined."""
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
    if isinstance(source, list):  # several named templates
        source = {each["name"]: each["template"] for each in source}.get("default")
    names = {name: _content(value) for name, value in settings.items() if name.endswith("_token") and value}
    try:
        return ChatTemplate(source, {name: value for name, value in names.items() if value})
    except TemplateError as error:
        raise ModelError(f"{folder}: its chat template cannot be read: {error}") from error


def _tokenizer_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, merged over special_tokens_map.json of older folders."""
    return _read_json(folder / "special_tokens_map.json", {}) | _read_json(folder / "tokenizer_config.json", {})


def _read_json(path: Path, default: dict[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON: {error}") from error


def _content(token: object) -> str:
    """The text of a special token, which is a string or a table with `content`."""
    if isinstance(token, dict):
        return str(token.get("content", ""))
    return token if isinstance(token, str) else ""


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern of any of the words, longer ones first; words of one character cannot be split and are left out."""
    longest_first = sorted((word for word in words if len(word) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else MATCHES_NOTHING
