"""Evaluates the embedded models on validation data; prints a table and writes JSON.

    python -m recipes.evaluate --models specchat/embedded --corpus FOLDER --out figures.json

Edits are made from validation files, decoded greedily, and correct only when the text is exact. With `--out`, an
interrupted evaluation continues.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recipes import acceptance_by_position, engine_acceptance
from recipes.acceptance_by_position import Answer, DraftFunction, PositionAcceptance
from recipes.corpus import read_documents
from recipes.dialogues import fenced
from recipes.edit_example import Edit
from recipes.edit_examples import MAKERS, make_edit
from recipes.embedded_models import EmbeddedModels, load_embedded_models
from recipes.engine_acceptance import DrafterFactory, EngineAcceptance
from recipes.evaluation_questions import QUESTIONS
from recipes.evaluation_results import ResultStore
from recipes.scores import ChatScore, KindScore, Reply, score_chat, score_edits
from recipes.snippets import snippets_of
from recipes.writer import TargetGenerator
from specchat.threads import threads_for
from specchat_train.export_weights import eagle3_hidden_state_layers
from specchat_train.trainable_llama import TrainableLlama

Item = TypeVar("Item")

FIRST_PART = 0.2  # of the snippets of a file
RESERVED_TOKENS = 40  # tokens that an answer may be longer than the right one
CHAT_LIMIT = 200
DEPTH = 4  # draft tokens in a chain
EXIT_LAYER = 4
ANSWERS_MEASURED = 24
ANSWERS_IN_ENGINE = 8  # for each drafter, kind of prompt and temperature
CODE_LINES = 24  # of a file that the target goes on with
SHORT_EDIT_CHARACTERS = 900


def edit_tasks(corpus: Path | None, per_kind: int, longest_lines: int, seed: int) -> dict[str, list[Edit]]:
    """So many edits of every kind, each from another snippet of a validation file."""
    rng = random.Random(seed)
    documents = [d for d in read_documents(corpus, validation=True) if d.is_python and len(d.text) < 200_000]
    rng.shuffle(documents)
    tasks: dict[str, list[Edit]] = {}
    taken = set[str]()
    for part in (FIRST_PART, 1.0):  # many files first; all of their snippets only for kinds that few snippets allow
        for document in documents:
            for snippet in snippets_of(document.text, rng, longest_lines):
                open_kinds = [kind for kind in MAKERS if len(tasks.get(kind, ())) < per_kind]
                if not open_kinds:
                    return tasks
                if snippet.text in taken or rng.random() > part:
                    continue
                rng.shuffle(open_kinds)
                made = ((kind, make_edit(kind, snippet, rng)) for kind in open_kinds)
                kind, edit = next(((kind, edit) for kind, edit in made if edit is not None), ("", None))
                if edit is not None:
                    tasks.setdefault(kind, []).append(edit)
                    taken.add(snippet.text)
    return tasks


def answer_edit(writer: TargetGenerator, edit: Edit, form: str) -> str:
    """What the model makes of an edit."""
    limit = len(writer.encoder.encode(fenced(edit.after))) + RESERVED_TOKENS
    (answer,) = writer.generate([writer.prompt(asked(edit, form))], limit)
    return writer.decode(answer)


def draft_functions(shipped: EmbeddedModels) -> dict[str, DraftFunction]:
    """The draft functions of all drafters."""
    target = shipped.target
    functions = {
        "draft": acceptance_by_position.draft_model_tokens(shipped.draft, DEPTH),
        "eagle3": acceptance_by_position.eagle3_tokens(
            shipped.eagle3, target, eagle3_hidden_state_layers(target.shape.layers), DEPTH
        ),
        "mtp": acceptance_by_position.final_state_head_tokens(shipped.mtp, target, DEPTH),
        "medusa": acceptance_by_position.medusa_tokens(shipped.medusa, target),
        f"exit after {EXIT_LAYER}": acceptance_by_position.early_exit_tokens(target, EXIT_LAYER, DEPTH),
    }
    if shipped.eagle1 is not None:
        functions["eagle"] = acceptance_by_position.final_state_head_tokens(shipped.eagle1, target, DEPTH)
    return functions


def measure_drafters(shipped: EmbeddedModels, answers: Sequence[Answer]) -> dict[str, PositionAcceptance]:
    """The acceptance by position of all drafters, on these greedy answers of the target."""
    return {
        name: acceptance_by_position.measure(shipped.target, answers, draft, DEPTH)
        for name, draft in draft_functions(shipped).items()
    }


FORMS = {
    "file": "{instruction}\n\nFile `snippet.py`:\n{code}",
    "plain": "{instruction}\n\n{code}",
}


def asked(edit: Edit, form: str) -> str:
    """The request of an edit, as `specchat edit` sends it (file) or as people paste it (plain)."""
    return FORMS[form].format(instruction=edit.instruction, code=fenced(edit.before))


def evaluate_edits(
    writer: TargetGenerator, tasks: dict[str, list[Edit]], form: str, record: ResultStore, bar: Progress
) -> None:
    """A line for each kind of edit as soon as it is done, and one for all."""
    print(table_line("kind of edit", "tried", "exact", "parses", "likeness"))
    scores = list[KindScore]()
    for kind, edits in sorted(tasks.items()):
        score = KindScore(
            **record.get_or_measure("edits", kind, partial(measure_edits, writer, kind, edits, form, bar))
        )
        print(table_line(kind, score.tried, score.exact, score.parses, score.similarity), flush=True)
        scores.append(score)
    total = sum(score.tried for score in scores)
    print(table_line("all", total, sum(score.exact * score.tried for score in scores) / total), flush=True)


def measure_edits(
    writer: TargetGenerator, kind: str, edits: Sequence[Edit], form: str, bar: Progress
) -> dict[str, object]:
    """The score of one kind of edit, as JSON has it."""
    shown = with_progress_bar(bar, kind, edits)
    return asdict(score_edits(kind, [(edit, answer_edit(writer, edit, form)) for edit in shown]))


def evaluate_chat(writer: TargetGenerator, record: ResultStore, bar: Progress, *, show: bool) -> None:
    """How the fixed questions went, and with `show` what was answered."""
    answers = record.get_or_measure("chat", "answers", partial(answer_questions, writer, bar))
    replies = [Reply(writer.decode(tokens), tokens, len(tokens) < CHAT_LIMIT) for tokens in answers]
    score = ChatScore(**record.get_or_measure("chat", "score", lambda: asdict(score_chat(replies))))
    expected = sum(question.expected is not None for question in QUESTIONS)
    print(
        f"{score.question_count} fixed questions: {score.ended} ended by themselves, {score.looping_answers} looped, "
        f"{score.expected_answers} of {expected} quoted the passage they were given"
    )
    for question, reply in zip(QUESTIONS, replies, strict=True) if show else ():
        print(f"> {question.text.splitlines()[0]}\n{reply.text}\n")


def answer_questions(writer: TargetGenerator, bar: Progress) -> list[list[int]]:
    """Greedy answers to the fixed questions, as tokens."""
    prompts = [writer.prompt(question.text) for question in QUESTIONS]
    return [writer.generate([prompt], CHAT_LIMIT)[0] for prompt in with_progress_bar(bar, "chat", prompts)]


def evaluate_acceptance(
    writer: TargetGenerator, models: Path, prompts: dict[str, list[list[int]]], record: ResultStore, bar: Progress
) -> None:
    """Acceptance by position on the target's greedy answers to short edits and to the fixed questions."""
    shipped = load_embedded_models(models)
    for kind in ("edit", "chat"):
        chosen = prompts[kind][:ANSWERS_MEASURED]
        answers = lru_cache(partial(greedy_answers, writer, chosen, bar))  # written when the first figure is missing
        print(table_line(f"acceptance: {kind}", "tokens/step", *(f"position {depth + 1}" for depth in range(DEPTH))))
        for name, draft in draft_functions(shipped).items():
            measure = partial(measure_draft_function, shipped.target, answers, draft)
            found = PositionAcceptance(tuple(record.get_or_measure(f"acceptance on {kind}", name, measure)))
            print(table_line(name, f"{found.tokens_per_step:.2f}", *found.by_position), flush=True)


def measure_draft_function(
    target: TrainableLlama, answers: Callable[[], list[Answer]], draft: DraftFunction
) -> list[float]:
    """The shares of one drafter, as JSON has them."""
    return list(acceptance_by_position.measure(target, answers(), draft, DEPTH).by_position)


def greedy_answers(writer: TargetGenerator, prompts: Sequence[list[int]], bar: Progress) -> list[Answer]:
    """These prompts with the target's answers."""
    return [
        Answer(prompt + writer.generate([prompt], CHAT_LIMIT)[0], len(prompt))
        for prompt in with_progress_bar(bar, "answers", prompts)
    ]


def evaluate_engine(
    writer: TargetGenerator, models: Path, prompts: dict[str, list[list[int]]], record: ResultStore, bar: Progress
) -> None:
    """Tokens per step of all drafters in the engine, by kind of prompt and temperature."""
    made = engine_acceptance.drafter_factories(models, writer.target)
    for kind, some in prompts.items():
        for temperature in engine_acceptance.TEMPERATURES:
            setting = f"engine: {kind} T={temperature:g}"
            print(
                table_line(setting, "tokens/step", *(f"depth {depth + 1}" for depth in range(engine_acceptance.DEPTHS)))
            )
            for name, maker in made.items():
                measure = partial(
                    measure_in_engine_rows, writer, (name, maker), some[:ANSWERS_IN_ENGINE], temperature, bar
                )
                found = EngineAcceptance(**record.get_or_measure(setting, name, measure))
                print(table_line(name, f"{found.tokens_per_step:.2f}", *found.by_depth), flush=True)


def measure_in_engine_rows(
    writer: TargetGenerator,
    drafter: tuple[str, DrafterFactory],
    prompts: Sequence[list[int]],
    temperature: float,
    bar: Progress,
) -> dict[str, object]:
    """What one drafter brings, as JSON has it."""
    name, maker = drafter
    return asdict(
        engine_acceptance.measure_in_engine(writer, maker, with_progress_bar(bar, name, prompts), temperature)
    )


def drafting_prompts(
    writer: TargetGenerator, corpus: Path | None, tasks: dict[str, list[Edit]], form: str
) -> dict[str, list[list[int]]]:
    """What drafters are measured on: short edits, files of validation code to go on with, and the fixed questions."""
    rng = random.Random(0)
    edits = [asked(edit, form) for some in tasks.values() for edit in some if len(edit.before) < SHORT_EDIT_CHARACTERS]
    rng.shuffle(edits)
    files = [document.text for document in read_documents(corpus, validation=True) if document.is_python]
    rng.shuffle(files)
    beginnings = ["".join(text.splitlines(keepends=True)[:CODE_LINES]) for text in files[:ANSWERS_IN_ENGINE]]
    return {
        "edit": [writer.prompt(text) for text in edits[:ANSWERS_MEASURED]],
        "code": [writer.encoder.encode(text) for text in beginnings],
        "chat": [writer.prompt(question.text) for question in QUESTIONS],
    }


def with_progress_bar(bar: Progress, what: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items, and how many of them are done."""
    task = bar.add_task(what, total=len(items))
    for item in items:
        yield item
        bar.advance(task)
    bar.remove_task(task)


def progress_bar() -> Progress:
    """On stderr; lines of the table stay whole when stdout is the same terminal, and stay on stdout when it is not."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        redirect_stdout=sys.stdout.isatty(),
        transient=True,
    )


def table_line(name: str, *values: str | float | None) -> str:
    """A row of a table: shares are percentages."""
    cells = (f"{value:.0%}" if isinstance(value, float) else "" if value is None else str(value) for value in values)
    return f"{name:<22}" + "".join(f"{cell:>10}" for cell in cells)


def weights_digest(models: Path) -> str:
    """Tells one set of weights from another."""
    digest = hashlib.sha256()
    for path in sorted(models.glob("*/*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.evaluate", description="Measure the embedded models.")
    parser.add_argument("--models", type=Path, default=Path(__file__).parents[1] / "specchat" / "embedded")
    parser.add_argument("--corpus", type=Path, help="the corpus folder; without one, the interpreter's own library")
    parser.add_argument("--part", choices=["writing", "drafters", "both"], default="both")
    parser.add_argument("--form", choices=list(FORMS), default="file", help="how an edit is asked for")
    parser.add_argument("--per-kind", type=int, default=40)
    parser.add_argument("--lines", type=int, default=60, help="the longest snippet")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--out", type=Path, help="keep the figures as JSON, and go on from those that are there")
    parser.add_argument("--show", action="store_true", help="print the answers to the fixed questions")
    chosen = parser.parse_args(arguments)
    settings = {name: str(getattr(chosen, name)) for name in ("corpus", "form", "per_kind", "lines", "seed")}
    try:
        record = ResultStore(chosen.out, settings | {"weights": weights_digest(chosen.models)})
    except ValueError as error:
        parser.error(str(error))
    writer = TargetGenerator(chosen.models / "target")
    torch.set_num_threads(threads_for(writer.target.bytes, torch.get_num_threads()))
    tasks = edit_tasks(chosen.corpus, chosen.per_kind, chosen.lines, chosen.seed)
    try:
        with progress_bar() as bar:
            if chosen.part != "drafters":
                evaluate_edits(writer, tasks, chosen.form, record, bar)
                evaluate_chat(writer, record, bar, show=chosen.show)
            if chosen.part != "writing":
                prompts = drafting_prompts(writer, chosen.corpus, tasks, chosen.form)
                evaluate_acceptance(writer, chosen.models, prompts, record, bar)
                evaluate_engine(writer, chosen.models, prompts, record, bar)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here" if chosen.out else "interrupted")


if __name__ == "__main__":
    main()
