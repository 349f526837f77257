"""The tokenizer of the embedded models: 8192 byte-level tokens, designed for copying.

An identifier has the same tokens everywhere: spaces are part of operators and keywords, never of the following word. A
line break includes the indentation after it, and digits are single tokens. So a renamed name, a quoted sentence and a
copied file have the same tokens in the question and in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from specchat.errors import ProfileError

VOCABULARY = 8192
END, USER, ASSISTANT, SYSTEM, FILE, PAD = "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|file|>", "<|pad|>"
FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
SPECIAL = (END, USER, ASSISTANT, SYSTEM, FILE, PAD, FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

# Words that are hardly ever names and mostly stand before another word; the space travels with them.
LEADERS = (
    "and as assert async await class def del elif except for from global if import in is lambda nonlocal not or raise"
    " return while with yield the of to that this be are was it can The This It If In you which will has have when than"
    " then"
)

PIECES = (
    rf"(?<![\p{{L}}\p{{N}}_])(?:{'|'.join(sorted(set(LEADERS.split()), key=len, reverse=True))}) (?=[\p{{L}}_])"
    r"|[\p{L}_]+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}_]+(?: (?! ))?"
    r"|\r?\n[\n \t]*"
    r"|[ \t]+"
    r"|\s"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn the pieces from these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=32,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write the three files that make the folder an ordinary one for AutoTokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [piece for piece in SPECIAL if piece not in (END, PAD)],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def token_of(tokenizer: Tokenizer, mark: str) -> int:
    """The id of a special token that must be there."""
    found = tokenizer.token_to_id(mark)
    if found is None:
        raise ProfileError(f"the tokenizer has no token {mark}; was it made by recipes.train_tokenizer?")
    return found


def load_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
