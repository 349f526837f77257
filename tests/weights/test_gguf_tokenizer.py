"""The tokenizer of a GGUF file writes what llama.cpp's tokenizer writes, and knows the tokens that end an answer.

`gguf_tokenization.json` has two small vocabularies, hard lines, and llama.cpp's tokens of each line by each rule.
"""

import json
from pathlib import Path

import tokenizers

from specchat.text.tokenizer import Tokenizer
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.gguf.gguf_splits import known_splits
from specchat.weights.gguf.gguf_tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, tokenizer_files
from tests.each_row import each_row
from tests.gguf_models import CONTROL_TOKENS, byte_tokenizer, write_gguf

GOLDEN = json.loads(Path(__file__).with_name("gguf_tokenization.json").read_text(encoding="utf-8"))
RULES = sorted({name for line in GOLDEN["lines"] for names, _ids in line["byte_level"] for name in names})


def tokenizer_of(metadata):
    files = tokenizer_files(Path("model.gguf"), metadata, 10**6)
    return tokenizers.Tokenizer.from_str(json.dumps(files.tokenizer))


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def sentencepiece(**entries):
    tokens = GOLDEN["sentencepiece"]["tokens"]
    normal = len(tokens) - 259
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * normal],
        "tokenizer.ggml.scores": [*[0.0] * 259, *(-float(rank) for rank in range(normal))],
    } | {f"tokenizer.ggml.{key}": value for key, value in entries.items()}


def test_every_rule_is_compared_with_llama_cpp():
    splits = known_splits()
    assert {splits[name] for name in RULES} == set(splits.values())


def test_marks_are_part_of_a_word_in_qwen35_and_not_in_qwen2():
    vocabulary = {f"tokenizer.ggml.{key}": value for key, value in GOLDEN["byte_level"].items()}
    words = [
        tokenizer_of(
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": rule, **vocabulary}
        ).pre_tokenizer.pre_tokenize_str("हिन्दी")
        for rule in ("qwen2", "qwen35")
    ]

    assert [len(each) for each in words] == [4, 1]


@each_row("rule", RULES)
def test_byte_level_tokens_are_those_of_llama_cpp(rule):
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": rule,
        "tokenizer.ggml.tokens": GOLDEN["byte_level"]["tokens"],
        "tokenizer.ggml.merges": GOLDEN["byte_level"]["merges"],
    }
    tokenizer = tokenizer_of(metadata)

    for line in GOLDEN["lines"]:
        expected = next(ids for names, ids in line["byte_level"] if rule in names)
        assert ids_of(tokenizer, line["text"]) == expected, line["text"]


@each_row("name, adds_space", [("with space prefix", True), ("without", False)])
def test_sentencepiece_tokens_are_those_of_llama_cpp(name, adds_space):
    tokenizer = tokenizer_of(sentencepiece(add_space_prefix=adds_space))

    for line in GOLDEN["lines"]:
        assert ids_of(tokenizer, line["text"]) == line["sentencepiece"][name], line["text"]


def test_the_merges_of_gemma_4_write_the_same_tokens():
    """llama.cpp writes the same tokens of these lines by scores and, as `gemma4`, by the merges that they mean."""
    by_scores = sentencepiece(add_space_prefix=False)
    tokenizer = json.loads(tokenizer_of(by_scores).to_str())
    merges = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
    metadata = by_scores | {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": merges}
    del metadata["tokenizer.ggml.scores"]
    tokenizer = tokenizer_of(metadata | {"tokenizer.ggml.unknown_token_id": 0})

    for line in GOLDEN["lines"]:
        assert ids_of(tokenizer, line["text"]) == line["sentencepiece"]["without"], line["text"]


def test_the_end_of_a_turn_of_gemma_4_ends_an_answer():
    metadata = sentencepiece(add_space_prefix=False)
    number = len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<turn|>"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], CONTROL]
    metadata["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], 0.0]

    assert number in tokenizer_files(Path("x.gguf"), metadata, 10**6).generation_config["eos_token_id"]


def prepared(tmp_path, monkeypatch, **entries):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    metadata = {f"tokenizer.{key.replace('__', '.')}": value for key, value in entries.items()}
    return prepared_gguf(write_gguf(tmp_path / "model.gguf", metadata=metadata))


def test_a_prepared_tokenizer_renders_the_template_of_the_file(tmp_path, monkeypatch):
    tokenizer = Tokenizer(prepared(tmp_path, monkeypatch))

    text = tokenizer.chat.render([{"role": "user", "content": "hello <|end|> 123"}], add_generation_prompt=True)

    ids = tokenizer.encode(text, parse_special=True)
    assert [ids[0], ids[-2], ids[-1]] == [
        CONTROL_TOKENS.index(each) for each in ("<|user|>", "<|end|>", "<|assistant|>")
    ]
    assert ids.count(0) == 1  # the end token in the message is text
    assert tokenizer.decode(ids) == "hello <|end|> 123"


def test_end_tokens_come_from_the_metadata_and_from_known_names(tmp_path, monkeypatch):
    tokens = byte_tokenizer()["tokenizer.ggml.tokens"] + ["<|eot_id|>", "<|im_end|>", "</s>"]
    types = [CONTROL] * 4 + [NORMAL] * (len(tokens) - 7) + [CONTROL, NORMAL, NORMAL]

    folder = prepared(
        tmp_path, monkeypatch, ggml__tokens=tokens, ggml__token_type=types, ggml__eos_token_id=2, ggml__eot_token_id=3
    )

    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [
        2, 3, 0, len(tokens) - 3, len(tokens) - 2,
    ]  # fmt: skip
    assert Tokenizer(folder).stop_token_ids == {0, 2, 3, len(tokens) - 3, len(tokens) - 2}


def test_a_first_token_that_llama_cpp_adds_is_written_by_the_template(tmp_path, monkeypatch):
    folder = prepared(tmp_path, monkeypatch, ggml__add_bos_token=True, ggml__bos_token_id=3)
    assert Tokenizer(folder).chat.render([{"role": "user", "content": "a"}], False) == "<|system|><|user|>a<|end|>"

    own = "{{ bos_token }}{{ messages[0]['content'] }}"
    folder = prepared(tmp_path, monkeypatch, ggml__add_bos_token=True, ggml__bos_token_id=3, chat_template=own)
    assert Tokenizer(folder).chat.render([{"role": "user", "content": "a"}], False) == "<|system|>a"


def test_a_model_without_a_template_joins_the_texts(tmp_path, monkeypatch):
    folder = prepared(tmp_path, monkeypatch, chat_template=None)

    assert Tokenizer(folder).chat.render([{"role": "user", "content": "a"}], True) == "a\n"


def test_spaces_of_gemma_become_the_published_spelling():
    metadata = sentencepiece(add_space_prefix=False)
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "          "]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], USER_DEFINED]
    metadata["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], -1000.0]
    tokenizer = tokenizer_of(metadata)

    number = len(metadata["tokenizer.ggml.tokens"]) - 1
    assert tokenizer.id_to_token(number) == "▁" * 10
    assert number in ids_of(tokenizer, "a          b")


def test_control_tokens_of_sentencepiece_are_never_made_from_text():
    tokenizer = tokenizer_of(sentencepiece())
    tokenizer.encode_special_tokens = True

    assert not {0, 1, 2} & set(ids_of(tokenizer, "<s> and </s> and <unk> and <0x0A>"))


def test_a_token_of_a_hostile_length_is_not_taken_apart():
    """The ways to put it together grow with its length, and so does each of them."""
    tokens = ["<unk>", "a", "aa", "a" * 200, "a" * 400]
    metadata = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [UNKNOWN, *[NORMAL] * 4], "tokenizer.ggml.scores": [0.0] * 5,
    }  # fmt: skip

    files = tokenizer_files(Path("x.gguf"), metadata, len(tokens))

    assert [["a", "a"]] == [list(pair) for pair in files.tokenizer["model"]["merges"]]
