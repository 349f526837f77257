"""Questions whose answer is a quotation from a given passage, often among other passages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from recipes.corpus import read_documents, read_rows
from recipes.dialogues import Dialogue, Turn, random_system_prompt
from specchat.chat.reference_corpus import Passage, with_passages

DEFINITION = re.compile(
    r"(?:^|(?<=\. ))(?:An? |The )?((?:`[\w.]+`|[A-Z]?[\w]+)(?: [a-z]+)?) (?:is|are) (?:an? |the )[^\n]*?\.(?= |$)",
    re.MULTILINE,
)
POINTERS = frozenset(["this", "that", "there", "these", "those", "what", "which", "here", "they", "such"])
ASK_WHAT = (
    "What is {topic}?", "what is {topic}", "What does {topic} mean?", "Explain {topic}.", "explain {topic}", "Define {topic}.",
    "Tell me about {topic}.", "What is a {topic}?", "what is a {topic} in Python?", "What is {topic} in Python?", "{topic}?",
    "Can you explain {topic}?", "What do you know about {topic}?", "I do not understand {topic}.", "describe {topic}",
    "In Python, what is {topic}?", "What's {topic}?", "Please explain {topic} to me.",
)  # fmt: skip
ASK_MODULE = (
    "What is the {topic} module for?", "What does the module {topic} do?", "What is {topic} used for?", "what is {topic}?",
    "When do I use {topic}?", "Explain the {topic} module.",
)  # fmt: skip
ASK_COMMAND = ("What does {topic} do?", "What is {topic}?", "What is the command {topic} for?", "explain {topic}")
ANSWERS = ("{text}", "{text}", "{text}", "{text}", "According to the reference: {text}", "The reference says: {text}")
NOT_FOUND = (
    "The reference does not say.",
    "I cannot find that in the reference.",
    "The reference says nothing about {topic}.",
)


def shortened(text: str, sentences: int = 3, longest: int = 420) -> str:
    """The first sentences of a text, as one line of prose."""
    flat = re.sub(r"\s+", " ", text.split("```", maxsplit=1)[0].split("\n\n", maxsplit=1)[0].replace("::", ":")).strip()
    parts = re.split(r"(?<=[.!?]) (?=[A-Z`])", flat)[:sentences]
    kept = ""
    for part in parts:
        if kept and len(kept) + len(part) > longest:
            break
        kept = f"{kept} {part}".strip()
    return kept[:longest] if kept.isascii() else ""


@dataclass(frozen=True)
class QuotablePassage:
    """A passage with the questions that fit it."""

    passage: Passage
    questions: tuple[str, ...]


def quotable_passages(corpus: Path | None, *, validation: bool) -> Iterator[QuotablePassage]:
    """Passages with the questions that fit them."""
    for row in read_rows(corpus, "glossary", validation=validation):
        yield QuotablePassage(Passage(row["term"], shortened(row["definition"])), ASK_WHAT)
    for row in read_rows(corpus, "stdlib_modules", validation=validation):
        intro = shortened(row.get("intro") or "", sentences=2)
        yield QuotablePassage(Passage(row["module"], f"{row['purpose'].rstrip('.')}. {intro}".strip()), ASK_MODULE)
    for row in read_rows(corpus, "python_faq", validation=validation):
        if row["a"] != "See the next question.":
            yield QuotablePassage(Passage(row["q"], shortened(row["a"])), ("{topic}",))
    for row in read_rows(corpus, "pep_abstracts", validation=validation):
        yield QuotablePassage(
            Passage(f"PEP {row['pep']}", f"{row['title']}. {shortened(row['abstract'], 2)}"), ASK_WHAT[:9]
        )
    for row in read_rows(corpus, "tldr", validation=validation):
        yield QuotablePassage(Passage(row["command"], shortened(row["description"])), ASK_COMMAND)


def defined_in_prose(corpus: Path | None, *, validation: bool) -> Iterator[QuotablePassage]:
    """Sentences of the documentation that say what something is."""
    for document in read_documents(corpus, validation=validation, tiers=("A",)):
        if document.is_python or document.source.startswith("tldr"):
            continue
        for paragraph in re.split(r"\n\s*\n", document.text[:40000]):
            flat = re.sub(r"\s+", " ", paragraph).strip()
            found = DEFINITION.search(flat)
            if found and 40 < len(flat) < 500 and flat.isascii() and len(found.group(1)) > 3:
                topic = found.group(1).strip("`")
                if topic.lower() not in POINTERS:
                    yield QuotablePassage(Passage(topic, flat), ASK_WHAT)


def quoting_dialogue(passages: Sequence[QuotablePassage], rng: Random) -> Dialogue | None:
    """One question about one of one to three passages, answered in its words; now and then none of them fits."""
    chosen = rng.choice(passages)
    asked = chosen.passage
    if len(asked.text) < 10:
        return None
    others = [rng.choice(passages).passage for _ in range(rng.choice((0, 1, 1, 2)))]
    others = [other for other in others if other.topic != asked.topic and other.text]
    question = rng.choice(chosen.questions).format(topic=asked.topic)
    if others and rng.random() < 0.06:
        return Dialogue((Turn(with_passages(question, others), rng.choice(NOT_FOUND).format(topic=asked.topic)),))
    shown = [asked, *others]
    if rng.random() < 0.5:
        rng.shuffle(shown)
    answer = rng.choice(ANSWERS).format(text=asked.text)
    return Dialogue((Turn(with_passages(question, shown), answer),), random_system_prompt(rng))
