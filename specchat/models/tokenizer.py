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
from specchat.models.detokenize import TextStream
from specchat.models.token_bytes import Spelling, read_spelling

CUT = "\ufdd0"
NEVER = re.compile(r"(?!)")

Message = Mapping[str, str]


class Tokenizer:
    """The tokens of one model. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settings = _settings(folder)
        self._backend = _load_backend(folder / "tokenizer.json")
        self._backend_lock = Lock()  # whether special tokens are seen is a state of the backend
        self.vocabulary: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        self.size = max(self.vocabulary.values()) + 1
        added = self._backend.get_added_tokens_decoder()
        self.added = frozenset(added)
        self.special = frozenset(token for token, how in added.items() if how.special)
        self._pattern = _any_of(token.content for token in added.values() if token.special)
        self._spelling = _spelling(self._backend, folder)
        self.strips_first_space = self._spelling.strips_first_space
        self.template = _load_template(folder, self._settings)
        self.stop = frozenset(self._declared_ends() | self._template_end())

    def __str__(self) -> str:
        return str(self.folder)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Tokens of a text. Only with `special`, for rendered templates, is "<|end|>" the token of that name."""
        if not special:
            return self._encode(text, special=False)
        first, *others = text.split(CUT)
        ids = self._encode(first, special=True)
        for part in others:
            ids += self._encode_inside(part)
        return ids

    def encode_inside(self, text: str) -> list[int]:
        """Tokens of the rest of a rendered template, after tokens that are there already."""
        return [token for part in text.split(CUT) for token in self._encode_inside(part)]

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """A conversation in the model's own shape, for `encode(..., special=True)`."""
        guarded = [{"role": message["role"], "content": self.guard(message["content"])} for message in messages]
        try:
            return self.template.render(guarded, add_generation_prompt)
        except TemplateError as error:
            raise ModelError(f"{self.folder}: its chat template refuses this conversation: {error}") from error

    def guard(self, text: str) -> str:
        """The text with a mark inside everything that looks like a control token.

        "a <|end|>" becomes "a <" + CUT + "|end|>", and `encode` will not see "<|end|>" there.
        """
        text, found = text.replace(CUT, ""), 1
        while found:
            text, found = self._pattern.subn(lambda match: f"{match[0][:1]}{CUT}{match[0][1:]}", text)
        return text

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for: part of a character, or a few of them; nothing for a padding row of the model."""
        return self._spelled[token] if 0 <= token < self.size else b""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens as it is shown: control tokens left out, invalid bytes as U+FFFD."""
        stream = self.stream()
        return stream.push(ids).text + stream.flush()

    def stream(self, stops: tuple[str, ...] = ()) -> TextStream:
        """A new answer that becomes text token by token, and ends before the first of these strings."""
        return TextStream(self._shown, stops, self.strips_first_space)

    def _shown(self, token: int) -> bytes:
        return b"" if token in self.special else self.bytes_of(token)

    def _encode(self, text: str, special: bool) -> list[int]:
        with self._backend_lock:
            self._backend.encode_special_tokens = not special
            return self._backend.encode(text, add_special_tokens=False).ids

    def _encode_inside(self, text: str) -> list[int]:
        """Tokens of a text that goes on after another: without the space that some tokenizers put before a text."""
        if not text:
            return []
        anchored = self._encode(f"\n{text}", special=True)
        anchor = self._anchor
        return anchored[len(anchor) :] if anchored[: len(anchor)] == anchor else self._encode(text, special=True)

    @cached_property
    def _anchor(self) -> list[int]:
        return self._encode("\n", special=False)

    @cached_property
    def _spelled(self) -> list[bytes]:
        """The bytes of every token. Byte-level tokenizers write their added tokens as they are."""
        as_it_is = self.added if self._spelling.byte_level else frozenset[int]()
        spelled = [b""] * self.size
        for piece, token in self.vocabulary.items():
            spelled[token] = piece.encode() if token in as_it_is else self._spelling.bytes_of(piece)
        return spelled

    def _declared_ends(self) -> set[int]:
        """The end tokens that the files of the folder name; what is said for generating goes before config.json."""
        generation = _read_json(self.folder / "generation_config.json", {})
        config = _read_json(self.folder / "config.json", {})
        said = (files.get("eos_token_id") for files in (generation, config, config.get("text_config") or {}))
        declared = next((ends for ends in said if ends is not None), [])
        ends = {declared} if isinstance(declared, int) else set[int](declared)
        named = self.vocabulary.get(_content(self._settings.get("eos_token")))
        return ends | ({named} if named is not None else set())

    def _template_end(self) -> set[int]:
        """The control token that the template writes right after an answer."""
        answer = "answer"
        try:
            rendered = self.template.render(
                [{"role": "user", "content": "question"}, {"role": "assistant", "content": answer}], False
            )
        except TemplateError:
            return set()
        end = self._pattern.match(rendered.rpartition(answer)[2].lstrip())
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


def _spelling(backend: tokenizers.Tokenizer, folder: Path) -> Spelling:
    decoder = backend.decoder
    try:
        return read_spelling(json.loads(decoder.__getstate__()) if decoder else None)
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


def _settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json says, on top of the file that older folders keep the special tokens in."""
    return _read_json(folder / "special_tokens_map.json", {}) | _read_json(folder / "tokenizer_config.json", {})


def _read_json(path: Path, otherwise: dict[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return otherwise
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
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else NEVER
