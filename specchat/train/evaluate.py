"""What the trained models can do, on rows that training never saw: one table on the screen, the same as JSON.

    python -m specchat.train.evaluate --models specchat/embedded --corpus FOLDER

Edits are made from validation files only, greedy decoding, and only the exact text counts as right.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from specchat.train import acceptance
from specchat.train.acceptance import Acceptance, Answer
from specchat.train.corpus import read_documents
from specchat.train.dialogues import Dialogue, Turn, fenced
from specchat.train.edit import Edit
from specchat.train.edits import MAKERS, make_edit
from specchat.train.examples import Encoder
from specchat.train.export import eagle_taps
from specchat.train.questions import QUESTIONS
from specchat.train.shipped import Shipped, read_shipped
from specchat.train.snippets import parses, snippets_of
from specchat.train.tokenizer import ASSISTANT, END, PAD, load_tokenizer, token_of

ROOM = 40  # tokens that an answer may be longer than the right one
DEPTH = 4  # how many guesses ahead acceptance is measured
EXIT_LAYER = 4
ANSWERS_MEASURED = 24
SHORT_LETTERS = 900


@dataclass(frozen=True)
class KindScore:
    """How a kind of edit went."""

    kind: str
    tried: int
    exact: float
    parses: float
    similarity: float


@dataclass(frozen=True)
class ChatScore:
    """How the fixed questions went: counts out of `asked`."""

    asked: int
    ended: int
    looped: int
    quoted: int


def edit_tasks(corpus: Path | None, per_kind: int, longest_lines: int, seed: int) -> dict[str, list[Edit]]:
    """So many edits of every kind, each from another snippet of a validation file."""
    dice = random.Random(seed)
    documents = [d for d in read_documents(corpus, validation=True) if d.is_python and len(d.text) < 200_000]
    dice.shuffle(documents)
    tasks: dict[str, list[Edit]] = {}
    for document in documents:
        for snippet in snippets_of(document.text, dice, longest_lines):
            if dice.random() > 0.2:
                continue
            open_kinds = [kind for kind in MAKERS if len(tasks.get(kind, ())) < per_kind]
            if not open_kinds:
                return tasks
            dice.shuffle(open_kinds)
            for kind in open_kinds:
                edit = make_edit(kind, snippet, dice)
                if edit is not None:
                    tasks.setdefault(kind, []).append(edit)
                    break
    return tasks


class Writer:
    """Greedy answers for many prompts at once."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.tokenizer: Tokenizer = load_tokenizer(folder)
        self.encoder = Encoder(self.tokenizer)
        loader: Any = AutoModelForCausalLM
        self.model = loader.from_pretrained(folder, dtype=torch.float32).to(device).eval()
        self.end, self.pad = (token_of(self.tokenizer, mark) for mark in (END, PAD))

    def prompt(self, question: str) -> list[int]:
        row = self.encoder.dialogue(Dialogue((Turn(question, ""),)))
        return row.tokens[: row.tokens.index(token_of(self.tokenizer, ASSISTANT)) + 1]

    @torch.no_grad()
    def write(self, prompts: Sequence[list[int]], limit: int) -> list[list[int]]:
        """Answers without their end mark; an answer that never ends has `limit` tokens."""
        longest = max(map(len, prompts))
        tokens = torch.tensor([[self.pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        written = self.model.generate(
            input_ids=tokens.to(self.model.device),
            attention_mask=mask.to(self.model.device),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=self.end,
            pad_token_id=self.pad,
        )
        answers = written[:, longest:].tolist()
        return [answer[: answer.index(self.end)] if self.end in answer else answer[:limit] for answer in answers]


def answer_edits(writer: Writer, edits: Sequence[Edit], form: str, batch: int = 20) -> Iterator[tuple[Edit, str]]:
    """Each edit with what the model wrote; edits of like length are asked together."""
    prompts = [(writer.prompt(asked(edit, form)), edit) for edit in edits]
    prompts.sort(key=lambda pair: len(pair[0]))
    for start in range(0, len(prompts), batch):
        part = prompts[start : start + batch]
        limit = max(len(writer.encoder.encode(fenced(edit.after))) for _, edit in part) + ROOM
        for (_, edit), answer in zip(part, writer.write([prompt for prompt, _ in part], limit), strict=True):
            yield edit, writer.tokenizer.decode(answer, skip_special_tokens=False)


def score_edits(pairs: Sequence[tuple[Edit, str]]) -> KindScore:
    count = len(pairs)
    exact = sum(written == fenced(edit.after) for edit, written in pairs)
    valid = sum(parses(code_of(written)) for _, written in pairs)
    likeness = sum(difflib.SequenceMatcher(None, fenced(e.after), w, autojunk=False).ratio() for e, w in pairs)
    return KindScore(pairs[0][0].kind, count, exact / count, valid / count, likeness / count)


def code_of(answer: str) -> str:
    found = re.match(r"```python\n(.*)```\Z", answer, re.DOTALL)
    return found.group(1) if found else "("


def loops(tokens: Sequence[int], width: int = 8, times: int = 3) -> bool:
    """Whether some run of `width` tokens stands there `times` times or more."""
    runs = Counter(tuple(tokens[start : start + width]) for start in range(len(tokens) - width + 1))
    return bool(runs) and max(runs.values()) >= times


def answer_questions(writer: Writer, limit: int = 200) -> list[tuple[str, list[int]]]:
    prompts = [writer.prompt(question.text) for question in QUESTIONS]
    return list(zip([question.text for question in QUESTIONS], writer.write(prompts, limit), strict=True))


def score_chat(writer: Writer, answers: Sequence[tuple[str, list[int]]], limit: int = 200) -> ChatScore:
    texts = [writer.tokenizer.decode(tokens) for _, tokens in answers]
    quoted = sum(
        question.expected is not None and question.expected.lower() in text.lower()
        for question, text in zip(QUESTIONS, texts, strict=True)
    )
    ended = sum(len(tokens) < limit for _, tokens in answers)
    return ChatScore(len(answers), ended, sum(loops(tokens) for _, tokens in answers), quoted)


def measure_drafters(shipped: Shipped, answers: Sequence[Answer]) -> dict[str, Acceptance]:
    """Acceptance by position of everyone who drafts, on these greedy answers of the target."""
    target = shipped.target
    guesses = {
        "draft": acceptance.guess_of_draft(shipped.draft, DEPTH),
        "eagle3": acceptance.guess_of_eagle(shipped.eagle, target, eagle_taps(target.shape.layers), DEPTH),
        "mtp": acceptance.guess_of_mtp(shipped.mtp, target, DEPTH),
        "medusa": acceptance.guess_of_medusa(shipped.medusa, target),
        f"exit after {EXIT_LAYER}": acceptance.guess_of_exit(target, EXIT_LAYER, DEPTH),
    }
    return {name: acceptance.measure(target, answers, guess, DEPTH) for name, guess in guesses.items()}


def greedy_answers(writer: Writer, questions: Sequence[str], limit: int = 200) -> list[Answer]:
    prompts = [writer.prompt(question) for question in questions]
    written = writer.write(prompts, limit)
    return [Answer([*prompt, *answer], len(prompt)) for prompt, answer in zip(prompts, written, strict=True)]


def print_acceptance(kind: str, measured: dict[str, Acceptance]) -> None:
    table = Table(
        "drafter", *(f"guess {k + 1}" for k in range(DEPTH)), "tokens per pass", title=f"acceptance on {kind}"
    )
    for name, found in measured.items():
        table.add_row(name, *(f"{share:.0%}" for share in found.by_position), f"{found.tokens_per_pass:.2f}")
    Console().print(table)


def print_table(scores: Sequence[KindScore], chat: ChatScore) -> None:
    table = Table("kind of edit", "tried", "exact", "parses", "likeness", title="validation snippets, greedy")
    for score in scores:
        table.add_row(
            score.kind, str(score.tried), *(f"{v:.0%}" for v in (score.exact, score.parses, score.similarity))
        )
    total = sum(score.tried for score in scores)
    table.add_row("all", str(total), f"{sum(s.exact * s.tried for s in scores) / total:.0%}", "", "")
    console = Console()
    console.print(table)
    expected = sum(question.expected is not None for question in QUESTIONS)
    console.print(
        f"{chat.asked} fixed questions: {chat.ended} ended by themselves, {chat.looped} looped, "
        f"{chat.quoted} of {expected} quoted the passage they were given"
    )


FORMS = {
    "file": "{instruction}\n\nFile `snippet.py`:\n{code}",
    "plain": "{instruction}\n\n{code}",
}


def asked(edit: Edit, form: str) -> str:
    """The request of an edit, as `specchat edit` sends it (file) or as people paste it (plain)."""
    return FORMS[form].format(instruction=edit.instruction, code=fenced(edit.before))


def evaluate_writing(writer: Writer, tasks: dict[str, list[Edit]], form: str, *, show: bool) -> dict[str, object]:
    """Edits and fixed questions, printed as a table."""
    scores = [score_edits(list(answer_edits(writer, edits, form))) for _, edits in sorted(tasks.items())]
    answers = answer_questions(writer)
    chat = score_chat(writer, answers)
    print_table(scores, chat)
    if show:
        for question, tokens in answers:
            print(f"> {question.splitlines()[0]}\n{writer.tokenizer.decode(tokens)}\n")
    return {"edits": [asdict(score) for score in scores], "chat": asdict(chat)}


def evaluate_drafters(writer: Writer, models: Path, tasks: dict[str, list[Edit]], form: str) -> dict[str, object]:
    """Acceptance of every drafter on edits and on the fixed questions, printed as two tables."""
    shipped = read_shipped(models)
    edits = [asked(edit, form) for some in tasks.values() for edit in some if len(edit.before) < SHORT_LETTERS]
    random.Random(0).shuffle(edits)
    questions = {"edits": edits, "chat": [question.text for question in QUESTIONS]}
    figures: dict[str, object] = {}
    for kind, texts in questions.items():
        measured = measure_drafters(shipped, greedy_answers(writer, texts[:ANSWERS_MEASURED]))
        print_acceptance(kind, measured)
        figures[f"acceptance on {kind}"] = {name: found.by_position for name, found in measured.items()}
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m specchat.train.evaluate", description="Measure the embedded models."
    )
    parser.add_argument("--models", type=Path, default=Path(__file__).parent.parent / "embedded")
    parser.add_argument("--corpus", type=Path, help="the corpus folder; without one, the interpreter's own library")
    parser.add_argument("--part", choices=["writing", "drafters", "both"], default="both")
    parser.add_argument("--form", choices=list(FORMS), default="file", help="how an edit is asked for")
    parser.add_argument("--per-kind", type=int, default=40)
    parser.add_argument("--lines", type=int, default=60, help="the longest snippet")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--show", action="store_true", help="print the answers to the fixed questions")
    chosen = parser.parse_args(arguments)
    writer = Writer(chosen.models / "target")
    tasks = edit_tasks(chosen.corpus, chosen.per_kind, chosen.lines, chosen.seed)
    figures: dict[str, object] = {}
    if chosen.part != "drafters":
        figures |= evaluate_writing(writer, tasks, chosen.form, show=chosen.show)
    if chosen.part != "writing":
        figures |= evaluate_drafters(writer, chosen.models, tasks, chosen.form)
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
