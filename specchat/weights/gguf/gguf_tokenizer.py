"""The tokenizer of a GGUF file → tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json.

The files say what llama.cpp does with the same metadata: byte-level BPE is split by the regular expressions that
`tokenizer.ggml.pre` names, and SentencePiece becomes BPE whose merges follow the scores. Reads no file and imports
neither torch nor transformers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.text.vocabulary import Vocabulary
from specchat.weights.gguf.gguf_file import MAX_ARRAY_ITEMS, GgufFile, StringArray, one_line
from specchat.weights.gguf.gguf_splits import Splits, known_splits

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
SENTENCEPIECE_MODELS = ("llama", "gemma4")  # the second one with merges, as published
PADDING = re.compile(r"\[PAD\d+\]")  # how llama.cpp's converter names rows of embeddings without a token
SPACE = "▁"  # how SentencePiece writes a space
# Control tokens that end an answer, whatever the metadata says.
END_TOKENS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>",
    "<eos>", "<EOT>", "[EOS]", "[EOT]", "<turn|>", "<|tool_response>",
)  # fmt: skip
SPECIAL_TOKEN_KEYS = {
    "bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}  # fmt: skip
MAX_MERGED_CHARACTERS = 256  # far above the 16 of SentencePiece; a longer token would take too long to take apart
DEFAULT_SPM_IDS = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class TokenizerFiles:
    """The contents of the files of a tokenizer."""

    tokenizer: JsonObject
    tokenizer_config: JsonObject
    chat_template: str | None
    generation_config: JsonObject

    @property
    def config_ids(self) -> JsonObject:
        """The token ids of config.json. Null where the file has none: transformers has a default for each family."""
        return dict.fromkeys(("bos_token_id", "pad_token_id")) | self.generation_config


def tokenizer_files(path: Path, metadata: Mapping[str, Any], vocab_size: int) -> TokenizerFiles:
    """The tokenizer in this metadata, for a model with `vocab_size` embeddings. ModelError if it is not supported."""
    vocabulary = _Vocabulary(path, metadata, vocab_size)
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        tokenizer, adds_bos = _byte_level(vocabulary), _splits(vocabulary).adds_bos
    elif model in SENTENCEPIECE_MODELS:
        tokenizer, adds_bos = _sentencepiece(vocabulary), True
    else:
        raise vocabulary.error(
            f"the tokenizer {model!r} is not supported; supported are gpt2 (BPE), llama (SPM) and gemma4"
        )
    special = {name: vocabulary.token(key) for name, key in SPECIAL_TOKEN_KEYS.items()}
    adds_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", adds_bos)) and special["bos_token"] is not None
    settings: JsonObject = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": adds_bos,
        "clean_up_tokenization_spaces": False,
        **{name: token for name, token in special.items() if token is not None},
    }
    ids: JsonObject = {"eos_token_id": vocabulary.end_ids}
    for key, name in (("bos_token_id", "bos_token_id"), ("padding_token_id", "pad_token_id")):
        if (number := vocabulary.special_id(key)) is not None:
            ids[name] = number
    return TokenizerFiles(
        tokenizer, settings, _chat_template(metadata, special["bos_token"] if adds_bos else None), ids
    )


def read_tokens(file: GgufFile) -> Vocabulary:
    """The tokens of a file, by its header."""
    vocabulary = _Vocabulary(file.path, file.metadata, MAX_ARRAY_ITEMS)
    added = frozenset(number for number, _token, _is_control in vocabulary.added_tokens())
    return Vocabulary({each: piece for each, piece in enumerate(vocabulary.tokens) if each not in added}, added)


class _Vocabulary:
    """Checked tokens, types and special ids."""

    def __init__(self, path: Path, metadata: Mapping[str, Any], vocab_size: int) -> None:
        self.path = path
        self.metadata = metadata
        self.tokens = self._texts("tokenizer.ggml.tokens")
        if len(self.tokens) > vocab_size:
            raise self.damaged(f"has {len(self.tokens):,} tokens, but {vocab_size:,} embeddings")
        self.tokens = [token or f"[EMPTY_{number}]" for number, token in enumerate(self.tokens)]
        if len(set(self.tokens)) < len(self.tokens):
            raise self.damaged("has a token twice in its vocabulary")
        kinds = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(self.tokens)
        if not isinstance(kinds, list) or len(kinds) < len(self.tokens) or not isinstance(kinds[0], int):
            raise self.damaged("has no type for some tokens")
        self.kinds: list[int] = kinds
        while self.kinds[len(self.tokens) - 1] == UNUSED and PADDING.fullmatch(self.tokens[-1]):
            self.tokens.pop()  # rows of embeddings, as many as suited a GPU: other sizes of the family have others
        self.end_ids = self._end_ids()

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.path}: {one_line(problem)}")

    def damaged(self, problem: str) -> ModelError:
        return self.error(f"{problem}; download the file again")

    def merges(self) -> list[tuple[str, str]]:
        """The pairs in the file; a pair whose token is not in the vocabulary could never be output."""
        known = set(self.tokens)
        pairs = (_split_merge(each) for each in self._texts("tokenizer.ggml.merges"))
        return [(left, right) for left, right in pairs if left in known and right in known and left + right in known]

    def special_id(self, key: str) -> int | None:
        default = DEFAULT_SPM_IDS.get(key) if self.metadata.get("tokenizer.ggml.model") == "llama" else None
        number = self.metadata.get(f"tokenizer.ggml.{key}", default)
        return number if isinstance(number, int) and 0 <= number < len(self.tokens) else None

    def token(self, key: str) -> str | None:
        number = self.special_id(key)
        return None if number is None else self.tokens[number]

    def added_tokens(self) -> Iterator[tuple[int, str, bool]]:
        """Number, text and whether it is a control token, of each token that is matched whole."""
        ends = set(self.end_ids)
        for number, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=False)):
            if kind in (CONTROL, UNKNOWN) or number in ends:
                yield number, token, True
            elif kind == USER_DEFINED:
                yield number, token, False

    def _end_ids(self) -> list[int]:
        declared = [self.special_id(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
        by_text = [
            number
            for number, token in enumerate(self.tokens)
            if token in END_TOKENS and (self.kinds[number] in (CONTROL, USER_DEFINED) or token.startswith("<|"))
        ]
        return list(dict.fromkeys([*(number for number in declared if number is not None), *by_text]))

    def _texts(self, key: str) -> list[str]:
        texts = self.metadata.get(key)
        if not isinstance(texts, list | StringArray) or not texts or not isinstance(texts[0], str):
            raise self.damaged(f"has no {key}")
        return list(texts)


def _split_merge(merge: str) -> tuple[str, str]:
    """A merge is written as two tokens with a space between; the first has at least one character."""
    middle = merge.find(" ", 1)
    return merge[: max(middle, 0)], merge[middle + 1 :]


def _splits(vocabulary: _Vocabulary) -> Splits:
    name = vocabulary.metadata.get("tokenizer.ggml.pre", "default")
    if name not in known_splits():
        raise vocabulary.error(
            f"its tokenizer splits words as {name!r}, which is not supported; use the model's *.safetensors"
        )
    return known_splits()[name]


def _byte_level(vocabulary: _Vocabulary) -> JsonObject:
    splits = _splits(vocabulary)
    steps: list[JsonObject] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in splits.patterns
    ]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return _tokenizer(
        vocabulary.tokens,
        vocabulary.merges(),
        _added_tokens(vocabulary.added_tokens()),
        normalizer={"type": "NFC"} if splits.normalizes else None,
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        model={"ignore_merges": splits.ignores_merges},
    )


def _sentencepiece(vocabulary: _Vocabulary) -> JsonObject:
    adds_space = bool(vocabulary.metadata.get("tokenizer.ggml.add_space_prefix", True))
    tokens, added = vocabulary.tokens, _added_tokens(vocabulary.added_tokens())
    if not adds_space:
        tokens, added = _with_written_spaces(vocabulary, added)
    steps: list[JsonObject] = [{"type": "Prepend", "prepend": SPACE}] if adds_space else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    decoders: list[JsonObject] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    has_merges = "tokenizer.ggml.merges" in vocabulary.metadata
    return _tokenizer(
        tokens,
        vocabulary.merges() if has_merges else _merges_from_scores(vocabulary, tokens),
        added,
        normalizer={"type": "Sequence", "normalizers": steps},
        pre_tokenizer=None,
        decoder={"type": "Sequence", "decoders": decoders},
        model={"unk_token": vocabulary.token("unknown_token_id"), "fuse_unk": True, "byte_fallback": True},
    )


def _with_written_spaces(vocabulary: _Vocabulary, added: Sequence[JsonObject]) -> tuple[list[str], list[JsonObject]]:
    """Gemma's tokens of several spaces: GGUF files hold them as spaces, and the published tokenizer as "▁▁"."""
    known = set(vocabulary.tokens)
    written = {token: SPACE * len(token) for token in vocabulary.tokens if token and not token.strip(" ")}
    written = {token: text for token, text in written.items() if text not in known}
    tokens = [written.get(token, token) for token in vocabulary.tokens]
    renamed = [
        {**each, "content": written[each["content"]], "normalized": True} if each["content"] in written else each
        for each in added
    ]
    return tokens, renamed


def _merges_from_scores(vocabulary: _Vocabulary, tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Every way to put a token together from two others; tokens with the highest score come first."""
    scores = vocabulary.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) < len(tokens) or not isinstance(scores[0], int | float):
        raise vocabulary.damaged("has neither merges nor a score for each token")
    mergeable = {
        token: number
        for number, token in enumerate(tokens)
        if vocabulary.kinds[number] in (NORMAL, USER_DEFINED, UNUSED)
    }
    merges = [
        (-scores[number], split, token[:split], token[split:])
        for token, number in mergeable.items()
        for split in range(1, len(token) if len(token) <= MAX_MERGED_CHARACTERS else 1)
        if token[:split] in mergeable and token[split:] in mergeable
    ]
    return [(left, right) for _score, _split, left, right in sorted(merges)]


def _added_tokens(tokens: Iterator[tuple[int, str, bool]]) -> list[JsonObject]:
    return [
        {
            "id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": is_special,
        }
        for number, text, is_special in tokens
    ]  # fmt: skip


def _tokenizer(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    added: Sequence[JsonObject],
    *,
    normalizer: JsonObject | None,
    pre_tokenizer: JsonObject | None,
    decoder: JsonObject,
    model: JsonObject,
) -> JsonObject:
    """A tokenizer.json."""
    bpe: JsonObject = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        **model, "vocab": {token: number for number, token in enumerate(tokens)}, "merges": list(merges),
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder, "model": bpe,
    }  # fmt: skip


def _chat_template(metadata: Mapping[str, Any], added_bos: str | None) -> str | None:
    """The template of the file. llama.cpp writes the first token itself where the template does not."""
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str) or not template.strip():
        template = None
    if added_bos is None:
        return template
    if template is None:
        return "{{ bos_token }}{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    has_bos = "bos_token" in template or added_bos in template
    return template if has_bos else f"{{{{ bos_token }}}}{template}"
