"""Questions for the heads of the starter model: from rows of the corpus, and from templates over topics.

    python -m recipes.starter_questions --corpus FOLDER --out FILE

Questions of one source (a row, a file, a topic) are either all in training or all held out. No question comes from the
sets that measure (`data/prompts`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recipes.corpus import read_documents, read_json_lines
from recipes.question_words import (
    CODE_TASKS,
    HOW_TO,
    LANGUAGES,
    MESSAGES,
    NAMES,
    RECIPIENTS,
    ROLES,
    SMALL_TALK,
    THINGS,
    TOPIC_QUESTIONS,
    TOPICS,
)

HELD_OUT_SHARE = 50  # one of so many sources
TOPIC_QUESTION_COUNT, ARITHMETIC_COUNT, PARAGRAPH_COUNT, JSON_COUNT = 9000, 700, 6000, 2500
DOCSTRING_COUNT, COMMAND_COUNT, CODE_PART_COUNT, EDIT_COUNT = 12000, 4500, 4000, 4000
MAX_CODE, MAX_TEXT = 1100, 900  # characters in a question
PARAGRAPH_INSTRUCTIONS = (
    "Summarize this text in one sentence.", "Summarize the following paragraph.", "Rewrite this text in simple words.",
    "What is the main point of this text?", "Turn this text into a list of bullet points.", "Make this text shorter.",
    "Fix the grammar and improve this text.", "Continue this text.", "Write a title for this text.",
    "List the keywords of this text.", "Translate this text to French.", "Ask me three questions about this text.",
    "Write a short email to a colleague based on this text.", "Do you agree with this text? Why?",
    "Extract the most important facts of this text as JSON.", "Rewrite this text more formally.",
    "Rewrite this text as a friendly message.", "Summarize this text in three bullet points.", "Paraphrase this text.",
    "Correct the mistakes in this text and change nothing else.", "Who would read this text? Explain.",
)  # fmt: skip
CODE_INSTRUCTIONS = (
    "What does this code do?", "Explain this function in simple words.", "Can you explain this code line by line?",
    "Write a docstring for this function.", "Add type hints to this function.", "Find possible bugs in this code.",
    "Refactor this function to make it more readable.", "Write unit tests for this function using pytest.",
)  # fmt: skip
CODE_PART_INSTRUCTIONS = (
    "What does this part of a file do?", "Explain this code.", "What could be improved here?", "Add comments to this code.",
    "Is there a bug in this code?", "Describe this code in one sentence.", "List the names that this code defines.",
    "Which errors can this code raise?", "Rewrite this code in JavaScript.", "Simplify this code.",
)  # fmt: skip
EDIT_INSTRUCTIONS = (
    "Rename the function to `{name}_all`. Answer with the whole code.", "Add a parameter `verbose` with the default False.",
    "Add a docstring and change nothing else.", "Add type hints and change nothing else.", "Remove the comments.",
    "Add a line that logs the call.", "Return early where that is possible.", "Use f-strings.",
    "Raise a ValueError if the first argument is empty.", "Make this function async.",
)  # fmt: skip
EDIT_KINDS = frozenset(
    ("docstring", "types", "rename", "remove", "remove_print", "logging", "fstring", "style", "refactor")
)
JSON_FORMS = (
    "Describe {topic} as a JSON object with the keys name, summary and facts.", "List ten words about {topic} as a JSON array.",
    "Write a JSON object with three questions about {topic} and their answers.", "Make a numbered list of facts about {topic}.",
    "Give a table in Markdown that compares {topic} and {other}.", "Write a YAML file with a plan to learn about {topic}.",
    "List five books or films about {topic}, one a line.", "Answer in JSON only: what is {topic}, and why does it matter?",
    "Write an example of a CSV file about {topic} with four columns and five rows.",
)  # fmt: skip
TASK_FORMS = (
    "Write a Python function that does the following: {}", "How would I implement this in Python? {}",
    "I need a Python function. {} Please show the code.", "Write a JavaScript function that does this: {}",
    "Write a class in Python for this: {}", "Write a short Python script: {}",
)  # fmt: skip
ARITHMETIC_FORMS = (
    "{name} has {total} {thing} and gives {b} to {other}. How many {thing} does {name} have left?",
    "{name} buys {c} boxes with {b} {thing} each. How many {thing} are there?",
    "{thing} cost ${c} each. How much do {b} {thing} cost?", "What is {a} + {b}?", "What is {a} times {c}?",
    "Solve for x: {c}x + {b} = {total}.", "What is {c}0% of {a}?", "Convert {a} kilometers to miles.",
    "A rectangle is {a} cm long and {b} cm wide. What is its area and its perimeter?",
    "{name} reads {b} pages a day. How many pages does {name} read in {c} weeks?", "Is {a} a prime number? Explain.",
    "{name} earns ${b} an hour and works {c} hours a day. How much does {name} earn in five days?",
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A question and its source."""

    source: str
    text: str

    @property
    def is_held_out(self) -> bool:
        return int(hashlib.sha256(self.source.encode()).hexdigest(), 16) % HELD_OUT_SHARE == 0


def all_questions(corpus: Path, rng: random.Random) -> list[Question]:
    """All different questions, in an order that depends on their text only."""
    questions = [*code_questions(corpus, rng), *text_questions(corpus, rng), *chat_questions(rng)]
    questions += [*edit_questions(corpus, rng), *code_part_questions(corpus, rng)]
    distinct = {question.text: question for question in questions}
    return sorted(distinct.values(), key=lambda question: hashlib.sha256(question.text.encode()).hexdigest())


def code_questions(corpus: Path, rng: random.Random) -> Iterator[Question]:
    """Tasks, functions to explain, to complete and to change, and shell commands."""
    for row in read_rows(corpus, "mbpp_train"):
        tests = "\n".join(row["test_list"][:3])
        yield Question(row["id"], f"{row['text']} Your code should pass these tests:\n\n{tests}")
        yield Question(row["id"], f"{rng.choice(CODE_INSTRUCTIONS)}\n{fenced(row['code'])}")
    for row in read_rows(corpus, "snippets_30s"):
        name, task = row["title"], first_sentence(row["explanation"])
        yield Question(name, f"Write a Python function named `{name}`. {task}")
        yield Question(name, f"Give an example of how to use this function:\n{fenced(row['code'])}")
    functions = [row for row in read_rows(corpus, "docstrings") if len(row["code"]) < MAX_CODE]
    for row in rng.sample(functions, min(DOCSTRING_COUNT, len(functions))):
        yield Question(row["src"] + row["path"] + row["name"], _about_function(row, rng))
    for row in read_rows(corpus, "ruff_rule_pairs"):
        if len(row.get("before") or "") in range(1, MAX_CODE):
            yield Question(row["rule"], f"What is wrong with this code?\n{fenced(row['before'])}")
    commands = list(read_rows(corpus, "tldr"))
    for row in rng.sample(commands, min(COMMAND_COUNT, len(commands))):
        example = rng.choice(row["examples"])
        forms = ("How do I use the `{0}` command?", "Explain this command:\n\n{1}", "Give me a shell command: {2}")
        yield Question(row["command"], rng.choice(forms).format(row["command"], example["a"], example["q"]))
    for task in CODE_TASKS:
        for language in ("Python", "Python", *rng.sample(LANGUAGES, 3)):
            form = rng.choice(("Write a {} function that {}.", "Write {} code that {} and explain it."))
            yield Question(task, form.format(language, task))


def _about_function(row: dict[str, Any], rng: random.Random) -> str:
    signature = re.match(r"((?:async )?def .*?\)(?:\s*->[^:]+)?:)\n", row["code"], re.DOTALL)
    kind = rng.choice(("task", "complete", "about"))
    if kind == "complete" and signature:
        body = row["doc"][:500].replace("\n", "\n    ")
        code = f'{signature.group(1)}\n    """{body}\n    """'
        return f"Complete the following Python function.\n\n{fenced(code)}"
    if kind == "task":
        return rng.choice(TASK_FORMS).format(first_sentence(row["doc"]))
    return f"{rng.choice(CODE_INSTRUCTIONS)}\n{fenced(row['code'])}"


def edit_questions(corpus: Path, rng: random.Random) -> Iterator[Question]:
    """Changes of one function: by the messages of commits that say what to do, and by general instructions."""
    for row in read_json_lines(corpus / "edits_snippets.jsonl.gz"):
        if row["kind"] in EDIT_KINDS and len(row["before"]) < MAX_CODE:
            yield Question(row["repo"] + row["path"], f"{first_sentence(row['message'])}\n{fenced(row['before'])}")
    functions = [row for row in read_rows(corpus, "docstrings") if len(row["code"]) < MAX_CODE]
    for row in rng.sample(functions, min(EDIT_COUNT, len(functions))):
        instruction = rng.choice(EDIT_INSTRUCTIONS).format(name=row["name"].rsplit(".", 1)[-1])
        yield Question(row["src"] + row["path"] + row["name"], f"{instruction}\n{fenced(row['code'])}")


def code_part_questions(corpus: Path, rng: random.Random) -> Iterator[Question]:
    """A few lines of a file of code, and the tasks of exercises."""
    for row in read_rows(corpus, "exercism_tasks"):
        task = row["instructions"][:MAX_TEXT]
        for language in rng.sample(LANGUAGES, 3):
            yield Question(row["slug"], f"Solve this exercise in {language}.\n\n{task}")
    files = [each for each in read_documents(corpus, validation=False, tiers=("A", "B")) if each.is_python]
    for document in rng.sample(files, min(CODE_PART_COUNT, len(files))):
        lines = document.text.splitlines()
        first = rng.randrange(max(len(lines) - 12, 1))
        part = "\n".join(lines[first : first + rng.randint(6, 24)])[:MAX_CODE]
        yield Question(document.source + document.path, f"{rng.choice(CODE_PART_INSTRUCTIONS)}\n{fenced(part)}")


def text_questions(corpus: Path, rng: random.Random) -> Iterator[Question]:
    """Questions about Python, and instructions about paragraphs."""
    for row in read_rows(corpus, "glossary"):
        yield Question(row["term"], f"What is {row['term']} in Python? Give an example.")
    for row in read_rows(corpus, "python_faq"):
        yield Question(row["q"], row["q"])
    for row in read_rows(corpus, "stdlib_modules"):
        yield Question(row["module"], f"What is the Python module `{row['module']}` for? Give an example.")
    for row in read_rows(corpus, "pep_abstracts"):
        yield Question(row["title"], f"{rng.choice(PARAGRAPH_INSTRUCTIONS)}\n\n{row['abstract'][:MAX_TEXT]}")
    paragraphs = [
        Question(document.source + document.path, re.sub(r"\s+", " ", paragraph.strip()))
        for document in read_documents(corpus, validation=False, tiers=("A",))
        if not document.is_python
        for paragraph in document.text.split("\n\n")
        if len(paragraph) in range(250, MAX_TEXT) and paragraph[0].isalpha() and "http" not in paragraph
    ]
    for found in rng.sample(paragraphs, min(PARAGRAPH_COUNT, len(paragraphs))):
        yield Question(found.source, f"{rng.choice(PARAGRAPH_INSTRUCTIONS)}\n\n{found.text}")


def chat_questions(rng: random.Random) -> Iterator[Question]:
    """General questions, messages, role play, arithmetic, small talk."""
    for forms, count in ((TOPIC_QUESTIONS, TOPIC_QUESTION_COUNT), (JSON_FORMS, JSON_COUNT)):
        for _ in range(count):
            topic, other = rng.sample(TOPICS, 2)
            yield Question(topic, rng.choice(forms).format(topic=topic, other=other))
    for task in HOW_TO:
        for form in ("How do I {}?", "What is the best way to {}?", "Give me three tips to {}."):
            yield Question(task, form.format(task))
    for message in MESSAGES:
        for recipient in RECIPIENTS:
            yield Question(message, f"Write an email to {recipient} {message}.")
    for role in ROLES:
        for topic in rng.sample(TOPICS, 12):
            yield Question(role + topic, f"You are {role}. Tell me about {topic}.")
    yield from arithmetic_questions(rng)
    for text in SMALL_TALK:
        yield Question(text, text)


def arithmetic_questions(rng: random.Random) -> Iterator[Question]:
    """Small sums, bare and in words."""
    for _ in range(ARITHMETIC_COUNT):
        a, b, c = rng.randint(20, 400), rng.randint(2, 60), rng.randint(2, 9)
        name, other = rng.sample(NAMES, 2)
        numbers = {"a": a, "b": b, "c": c, "total": a + b}
        text = rng.choice(ARITHMETIC_FORMS).format(name=name, other=other, thing=rng.choice(THINGS), **numbers)
        yield Question(text, text)


def read_rows(corpus: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of one file of `corpus/rows`."""
    return read_json_lines(corpus / "rows" / f"{name}.jsonl.gz")


def fenced(code: str) -> str:
    return f"```python\n{code.strip()}\n```"


def first_sentence(text: str) -> str:
    first = re.sub(r"\s+", " ", text.split("\n\n", maxsplit=1)[0]).strip()
    found = re.match(r".{15,}?[.!?](?=\s|$)", first)
    return (found.group() if found else first)[:220]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    questions = all_questions(arguments.corpus, random.Random(0))
    rows = [json.dumps(asdict(question) | {"is_held_out": question.is_held_out}) for question in questions]
    arguments.out.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(f"{len(questions)} questions, {sum(question.is_held_out for question in questions)} held out")


if __name__ == "__main__":
    main()
