"""Text to tokens and back, from the files of a model's folder, without transformers.

`tokenizer.json` holds the pieces, `chat_template.jinja` or `tokenizer_config.json` the shape of a conversation, and
`generation_config.json`, `config.json` and the template say which tokens end an answer.

Text of other people never becomes a control token. What looks like one ("<|end|>" in a question about templates) is
cut in two by a mark, U+FDD0, when a message is put into the template: a noncharacter, which Unicode keeps for such
inner use and which is therefore taken out of every message first. `encode` cuts the rendered text at the marks and
encodes the parts one by one. So trimming and splitting inside a template work as ever, a text without control tokens
has no mark and is encoded in one go, exactly as transformers does it, and no part can hold what was cut apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import tokenizers

from specchat.errors import ModelError
from specchat.models.chat_template import ChatTemplate, TemplateError
from specchat.models.detokenize import Detokenizer
from specchat.models.token_bytes import TokenDecoder, read_token_decoder

SPLIT_MARK = "\ufdd0"
MATCHES_NOTHING = re.compile(r"(?!)")

Message = Mapping[str, str]


class Tokenizer:
    """The tokens of one model. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settings = _tokenizer_settings(folder)
        self._backend = _load_backend(folder / "tokenizer.json")
        self._backend_lock = Lock()  # whether special tokens are seen is a state of the backend
        self.vocabulary: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self.vocabulary.values()) + 1
        added_token_ids = self._backend.get_added_tokens_decoder()
        self.added = frozenset(added_token_ids)
        self.special_token_ids = frozenset(token for token, how in added_token_ids.items() if how.special)
        self._control_token_pattern = _any_of(token.content for token in added_token_ids.values() if token.special)
        self._token_decoder = _load_token_decoder(self._backend, folder)
        self.strips_first_space = self._token_decoder.strips_first_space
        self.template = _load_template(folder, self._settings)
        self.stop_token_ids = frozenset(self._declared_stop_ids() | self._template_stop_ids())

    def __str__(self) -> str:
        return str(self.folder)

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Tokens of a text. Only with `special`, for rendered templates, is "<|end|>" the token of that name."""
        if not parse_special:
            return self._encode(text, parse_special=False)
        first, *others = text.split(SPLIT_MARK)
        ids = self._encode(first, parse_special=True)
        for part in others:
            ids += self._encode_continuation(part)
        return ids

    def encode_continuation(self, text: str) -> list[int]:
        """Tokens of the rest of a rendered template, after tokens that are there already."""
        return [token for part in text.split(SPLIT_MARK) for token in self._encode_continuation(part)]

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """A conversation in the model's own shape, for `encode(..., special=True)`."""
        guarded = [
            {"role": message["role"], "content": self.escape_control_tokens(message["content"])} for message in messages
        ]
        try:
            return self.template.render(guarded, add_generation_prompt)
        except TemplateError as error:
            raise ModelError(f"{self.folder}: its chat template refuses this conversation: {error}") from error

    def escape_control_tokens(self, text: str) -> str:
        """The text with a mark inside everything that looks like a control token.

        "a <|end|>" becomes "a <" + CUT + "|end|>", and `encode` will not see "<|end|>" there.
        """
        text, found = text.replace(SPLIT_MARK, ""), 1
        while found:
            text, found = self._control_token_pattern.subn(
                lambda match: f"{match[0][:1]}{SPLIT_MARK}{match[0][1:]}", text
            )
        return text

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for: part of a character, or a few of them; nothing for a padding row of the model."""
        return self._token_byte_table[token] if 0 <= token < self.vocab_size else b""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens as it is shown: control tokens left out, invalid bytes as U+FFFD."""
        stream = self.detokenizer()
        return stream.push(ids).text + stream.flush()

    def detokenizer(self, stop_strings: tuple[str, ...] = ()) -> Detokenizer:
        """A new answer that becomes text token by token, and ends before the first of these strings."""
        return Detokenizer(self._shown, stop_strings, self.strips_first_space)

    def _shown(self, token: int) -> bytes:
        return b"" if token in self.special_token_ids else self.token_bytes(token)

    def _encode(self, text: str, parse_special: bool) -> list[int]:
        with self._backend_lock:
            self._backend.encode_special_tokens = not parse_special
            return self._backend.encode(text, add_special_tokens=False).ids

    def _encode_continuation(self, text: str) -> list[int]:
        """Tokens of a text that goes on after another: without the space that some tokenizers put before a text."""
        if not text:
            return []
        anchored = self._encode(f"\n{text}", parse_special=True)
        anchor = self._newline_tokens
        return anchored[len(anchor) :] if anchored[: len(anchor)] == anchor else self._encode(text, parse_special=True)

    @cached_property
    def _newline_tokens(self) -> list[int]:
        return self._encode("\n", parse_special=False)

    @cached_property
    def _token_byte_table(self) -> list[bytes]:
        """The bytes of every token. Byte-level tokenizers write their added tokens as they are."""
        as_it_is = self.added if self._token_decoder.is_byte_level else frozenset[int]()
        spelled = [b""] * self.vocab_size
        for piece, token in self.vocabulary.items():
            spelled[token] = piece.encode() if token in as_it_is else self._token_decoder.piece_bytes(piece)
        return spelled

    def _declared_stop_ids(self) -> set[int]:
        """The end tokens that the files of the folder name; what is said for generating goes before config.json."""
        generation = _read_json(self.folder / "generation_config.json", {})
        config = _read_json(self.folder / "config.json", {})
        said = (files.get("eos_token_id") for files in (generation, config, config.get("text_config") or {}))
        declared = next((ends for ends in said if ends is not None), [])
        ends = {declared} if isinstance(declared, int) else set[int](declared)
        named = self.vocabulary.get(_content(self._settings.get("eos_token")))
        return ends | ({named} if named is not None else set())

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
        raise ModelError(f"{path.parent}: tokenizer.json is missing; a model's folder needs one")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for a file it cannot read
        raise ModelError(f"{path}: not a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _load_token_decoder(backend: tokenizers.Tokenizer, folder: Path) -> TokenDecoder:
    decoder = backend.decoder
    try:
        return read_token_decoder(json.loads(decoder.__getstate__()) if decoder else None)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from error


def _load_template(folder: Path, settings: Mapping[str, Any]) -> ChatTemplate:
    """The template of a chat model; a folder without one gets the bare texts."""
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
    if isinstance(source, list):  # several templates by name
        source = {each["name"]: each["template"] for each in source}.get("default")
    names = {name: _content(value) for name, value in settings.items() if name.endswith("_token") and value}
    try:
        return ChatTemplate(source, {name: value for name, value in names.items() if value})
    except TemplateError as error:
        raise ModelError(f"{folder}: its chat template cannot be read: {error}") from error


def _tokenizer_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json says, on top of the file that older folders keep the special tokens in."""
    return _read_json(folder / "special_tokens_map.json", {}) | _read_json(folder / "tokenizer_config.json", {})


def _read_json(path: Path, default: dict[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON: {error}") from error


def _content(token: object) -> str:
    """A special token is written as a string, or as a table with its `content`."""
    if isinstance(token, dict):
        return str(token.get("content", ""))
    return token if isinstance(token, str) else ""


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Matches any of the words, the longer first; those of one character cannot be cut and are left alone."""
    longest_first = sorted((word for word in words if len(word) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else MATCHES_NOTHING
