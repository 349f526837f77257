"""The reference corpus of the embedded models: passages to quote, from the corpus and written here.

A passage must be complete in itself: cross-references are followed, and an answer must still be a sentence after its
lists and code are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from recipes.corpus import read_rows
from recipes.quoting import shortened
from specchat.chat.reference_corpus import Passage

SHORTEST = 40  # characters
POINTER = re.compile(r"(?:See|See also|An? synonym for) `?([\w ]+?)`?\.?")
OWN_PASSAGES = (
    ("speculative decoding", "A cheap drafter proposes several tokens, the target model verifies all of them in one pass, and the correct ones are accepted. The text is the same as without."),
    ("drafter", "The part that proposes the next tokens: a copy from the text, a small model, or a head on the target model. A rejected draft token costs a little time and changes nothing."),
    ("lookup", "A drafter that copies what followed the same words earlier in the text. It costs nearly nothing and is best when a file is rewritten."),
    ("draft model", "A small model of the same family that drafts tokens for the target model."),
    ("acceptance", "The share of the draft tokens that the target model accepts."),
    ("tokens per step", "How many tokens one pass of the target model generates on average. One means that no draft token was accepted."),
    ("target", "The model that generates the answer. It verifies every draft token."),
    ("EAGLE", "A small head that drafts from the hidden states of the target model."),
    ("Medusa", "Several small heads on the target model, each of which drafts one token further ahead."),
    ("lossless", "The text with draft tokens is the text without them, token by token, because only draft tokens that equal the model's own choice are accepted."),
    ("specchat", "A chat and code assistant for the terminal that answers sooner by speculative decoding, without changing a word of what the model says."),
    ("profile", "A file that says which models to load, how to sample and which drafter to use. The command specchat config show prints the one in use."),
)  # fmt: skip


def collect_passages(corpus: Path | None) -> list[Passage]:
    """Every passage that can be quoted, each topic once; without a corpus only our own."""
    entries = dict[str, Passage]()
    for passage in (*_own_passages(), *_from_corpus(corpus)):
        entries.setdefault(passage.topic.lower(), passage)
    followed = (_resolve_pointer(passage, entries) for passage in entries.values())
    return [passage for passage in followed if len(passage.text) >= SHORTEST]


def write_passages(passages: Iterable[Passage], path: Path) -> None:
    """One passage a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(passage)) + "\n" for passage in passages))


def _own_passages() -> Iterator[Passage]:
    return (Passage(topic, text, "specchat") for topic, text in OWN_PASSAGES)


def _from_corpus(corpus: Path | None) -> Iterator[Passage]:
    for is_validation in (False, True):  # a book is looked up, not learnt: nothing of it need be held back
        for row in read_rows(corpus, "glossary", validation=is_validation):
            yield Passage(row["term"], shortened(row["definition"]), "Python glossary")
        for row in read_rows(corpus, "stdlib_modules", validation=is_validation):
            purpose, intro = row["purpose"].rstrip("."), shortened(row.get("intro") or "", sentences=2)
            yield Passage(row["module"], f"{purpose}. {intro}".strip(), "Python library reference")
        for row in read_rows(corpus, "python_faq", validation=is_validation):
            yield Passage(row["q"], shortened(row["a"]), "Python FAQ")


def _resolve_pointer(passage: Passage, entries: dict[str, Passage]) -> Passage:
    """What an entry says that only points to another one."""
    pointer = POINTER.fullmatch(passage.text)
    found = entries.get(pointer[1].lower()) if pointer else None
    return Passage(passage.topic, f"{found.topic}: {found.text}", found.source) if found else passage
