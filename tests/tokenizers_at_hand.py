"""Folders with tiny tokenizers of both families, trained on a few lines, and with faulty templates."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, the fox runs away over the hills.",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n",
    "Question and answer: what is a fox? A fox is quick. Naïve café, 12.5 €.",
]
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TRIMMING = CHAT.replace("message['content'] }}", "message['content'] | trim }}")
FORGETFUL = CHAT.replace(
    "message['content'] }}",
    "message['content'].split('</think>')[-1] if message['role'] == 'assistant' else message['content'] }}",
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + CHAT


def byte_level(folder: Path, template: str = CHAT, special: list[str] = SPECIAL, size: int = 400) -> Path:
    """Byte-level BPE, as in GPT-2, Llama 3 and Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return _saved(tokenizer, folder, template)


def sentence_piece(folder: Path, template: str = CHAT) -> Path:
    """Pieces with "▁" for a space and byte fallback, as in Llama 2 and Mistral."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bytes_ = [f"<0x{code:02X}>" for code in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=440, special_tokens=["<unk>", *bytes_, *SPECIAL], limit_alphabet=40, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _saved(tokenizer, folder, template)


def add_token(folder: Path, content: str, special: bool) -> None:
    """Append one token."""
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_tokens([AddedToken(content, special=special, normalized=False)])
    tokenizer.save(path)


def _saved(tokenizer: Tokenizer, folder: Path, template: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("<|end|>")
    files = {
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"},
        "generation_config.json": {"eos_token_id": [end]},
        "config.json": {"model_type": "llama", "eos_token_id": end},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder
