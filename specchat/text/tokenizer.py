"""Text to tokens and back, from the files of a model's folder, without transformers.

`tokenizer.json` has the vocabulary, `chat_template.jinja` or `tokenizer_config.json` the chat template;
`generation_config.json`, `config.json` and the template define the tokens that end an answer.

Text of a message never becomes a control token (`control_tokens.py`).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import tokenizers

from specchat.errors import ModelError
from specchat.text.chat_format import ChatFormat
from specchat.text.chat_template import ChatTemplate, TemplateError
from specchat.text.control_tokens import SPLIT_MARK, ControlTokens, any_of
from specchat.text.detokenize import Detokenizer
from specchat.text.token_bytes import TokenDecoder, read_token_decoder
from specchat.text.token_encoder import TokenEncoder
from specchat.text.vocabulary import TokenIds, Vocabulary

PIECE_CHARACTERS = 32 * 2**10  # about a tenth of a second
MAX_VOCABULARY = 2**24
MAX_TOKENS_ACROSS_BORDER = 8
NO_MARKERS = frozenset[int]()


class Tokenizer:
    """The tokenizer of one model. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # special_tokens_map.json is of older folders
        self._settings = _read_json(folder / "special_tokens_map.json") | _read_json(folder / "tokenizer_config.json")
        self._encoder = TokenEncoder(folder)
        backend = self._encoder.backend
        self.vocabulary = TokenIds(backend)
        self.vocab_size = _vocabulary_size(backend.get_vocab(with_added_tokens=True), folder)
        added_token_ids = backend.get_added_tokens_decoder()
        self.added = frozenset(added_token_ids)
        self.special_token_ids = frozenset(index for index, token in added_token_ids.items() if token.special)
        self.control_tokens = ControlTokens(token.content for token in added_token_ids.values() if token.special)
        self._token_decoder = _load_token_decoder(backend, folder)
        self._bytes_of_token: dict[int, bytes] = {}  # all of them would take a tenth of a second before the first token
        self.strips_first_space = self._token_decoder.strips_first_space
        template = _load_template(folder, self._settings)
        self.chat = ChatFormat(folder, template, self.vocabulary, self.control_tokens)
        self.stop_token_ids = frozenset(self._declared_stop_ids() | self.chat.stop_token_ids())

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def tokens(self) -> Vocabulary:
        """What a draft model must share."""
        return Vocabulary(
            {each: piece for piece, each in self.vocabulary.items() if each not in self.added}, self.added
        )

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """The tokens of a text. "<|end|>" becomes a control token only with `parse_special`, for rendered templates."""
        if not parse_special:
            return self._encoder.encode(text, parse_special=False)
        first, *others = text.split(SPLIT_MARK)
        ids = self._encoder.encode(first, parse_special=True)
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

    def generated_text(self, answer_ids: Sequence[int]) -> str:
        """The text of an answer with the markers of its thought, as `ChatFormat.escape_answer` expects it."""
        ids = answer_ids[:-1] if answer_ids and answer_ids[-1] in self.stop_token_ids else answer_ids
        stream = self.detokenizer(shown_markers=self.chat.thinking_token_ids)
        return stream.push(ids) + stream.flush()

    def find_stop_token(self, rendered: str, start: int) -> int | None:
        """Where the first token that ends an answer stands in a rendered prompt, from here on."""
        match = self._stop_token_pattern.search(rendered, start)
        return match.start() if match else None

    @cached_property
    def _stop_token_pattern(self) -> re.Pattern[str]:
        texts = (self.token_bytes(token).decode("utf-8", "ignore") for token in self.stop_token_ids)
        return any_of(text for text in texts if self.control_tokens.pattern.fullmatch(text))

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token, possibly part of a character; empty for padding ids above the vocabulary."""
        if token not in self._bytes_of_token:
            piece = (self._encoder.backend.id_to_token(token) or "") if 0 <= token < self.vocab_size else ""
            # Byte-level tokenizers store added tokens as plain text.
            is_plain = self._token_decoder.is_byte_level and token in self.added
            self._bytes_of_token[token] = piece.encode() if is_plain else self._token_decoder.piece_bytes(piece)
        return self._bytes_of_token[token]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens, without control tokens; invalid bytes become U+FFFD."""
        stream = self.detokenizer()
        return stream.push(ids) + stream.flush()

    def detokenizer(self, *, is_continuation: bool = False, shown_markers: frozenset[int] = NO_MARKERS) -> Detokenizer:
        """A decoder of one text, or of the rest of a text, whose first space counts.

        Control tokens are hidden, except the shown markers.
        """
        hidden = self.special_token_ids - shown_markers
        return Detokenizer(
            lambda token: b"" if token in hidden else self.token_bytes(token),
            self.strips_first_space and not is_continuation,
        )

    def bytes_with_markers(self, token: int) -> bytes:
        """The bytes that a token adds to an answer, the markers of its thought among them."""
        is_hidden = token in self.special_token_ids and token not in self.chat.thinking_token_ids
        return b"" if is_hidden else self.token_bytes(token)

    def _encode_continuation(self, text: str) -> list[int]:
        """The tokens of a text that continues another: without the space that some tokenizers add at the start."""
        if not text:
            return []
        anchored, anchor = self._encoder.encode(f"\n{text}", parse_special=True), self._newline_tokens
        if anchored[: len(anchor)] == anchor:
            return anchored[len(anchor) :]
        return self._encoder.encode(text, parse_special=True)

    @cached_property
    def _newline_tokens(self) -> list[int]:
        return self._encoder.encode("\n", parse_special=False)

    @cached_property
    def start_token_ids(self) -> list[int]:
        """The tokens with which the model expects every text to begin, for example "<s>"; none for most models."""
        return self._encoder.start_tokens()

    def _declared_stop_ids(self) -> set[int]:
        """The stop tokens in the files of the folder; generation_config.json goes before config.json."""
        generation = _read_json(self.folder / "generation_config.json")
        config = _read_json(self.folder / "config.json")
        files = (each for each in (generation, config, config.get("text_config")) if isinstance(each, dict))
        declared = next((ids for file in files if (ids := file.get("eos_token_id")) is not None), [])
        stop_ids = declared if isinstance(declared, list) else [declared]
        if not all(isinstance(each, int) for each in stop_ids):
            raise ModelError(f"{self.folder}: eos_token_id is {str(declared)[:80]!r}, which is no id of a token")
        eos = self.vocabulary.get(_content(self._settings.get("eos_token")))
        return {*stop_ids, *([eos] if eos is not None else [])}


def check_same_tokens(target: Tokenizer, draft: Tokenizer) -> None:
    """ModelError when the ordinary tokens differ. The sizes of models say nothing: related ones have other padding."""
    if difference := target.tokens.first_difference(draft.tokens):
        raise ModelError(
            f"draft {draft}: its tokens are not those of the target {target} ({difference}); "
            "choose a draft of the same family, or none with --draft ''"
        )


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
        named = (each for each in source if isinstance(each, dict) and each.get("name") == "default")
        source = next((each.get("template") for each in named), None)
    if not isinstance(source, str | None):
        raise ModelError(f"{folder}: its chat template is no text")
    names = {name: _content(value) for name, value in settings.items() if name.endswith("_token") and value}
    try:
        return ChatTemplate(source, {name: value for name, value in names.items() if value})
    except TemplateError as error:
        raise ModelError(f"{folder}: its chat template cannot be read: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty without the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object")
    return content


def _content(token: object) -> str:
    """The text of a special token, which is a string or a table with `content`."""
    if isinstance(token, dict):
        return str(token.get("content", ""))
    return token if isinstance(token, str) else ""
