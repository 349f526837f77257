"""Thirty fixed questions for the evaluation; those with a reference have the expected words of the answer."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.chat.reference_corpus import Passage, with_passages


@dataclass(frozen=True)
class Question:
    """What is asked, and words that a quoting answer must hold."""

    text: str
    expected: str | None = None


PASSAGES = (
    Passage(
        "generator",
        "A function that returns a generator iterator. It looks like a normal function except that it contains yield expressions.",
    ),
    Passage(
        "list comprehension",
        "A compact way to process all or part of the elements in a sequence and return a list with the results.",
    ),
    Passage(
        "decorator",
        "A function returning another function, usually applied as a function transformation using the @wrapper syntax.",
    ),
    Passage(
        "context manager",
        "An object that controls the environment seen in a with statement by defining enter and exit methods.",
    ),
    Passage(
        "pathlib",
        "Object-oriented filesystem paths. This module offers classes representing filesystem paths with semantics appropriate for different operating systems.",
    ),
    Passage(
        "json",
        "Encode and decode the JSON format. JSON is a lightweight data interchange format inspired by JavaScript object literal syntax.",
    ),
    Passage(
        "dictionary",
        "An associative array, where arbitrary keys are mapped to values. The keys can be any object with hash and eq methods.",
    ),
    Passage(
        "iterator",
        "An object representing a stream of data. Repeated calls to the next method return successive items in the stream.",
    ),
    Passage(
        "global interpreter lock",
        "The mechanism used by the interpreter to assure that only one thread executes Python bytecode at a time.",
    ),
    Passage("namespace", "The place where a variable is stored. Namespaces are implemented as dictionaries."),
    Passage(
        "lookup drafter",
        "A drafter that copies what followed the same words earlier in the text. It costs nearly nothing.",
    ),
    Passage(
        "acceptance test",
        "The rule that accepts the draft tokens that equal the tokens sampled by the target and rejects the others.",
    ),
)


def referenced() -> list[Question]:
    """A question about each passage, shown together with the next one."""
    forms = ("What is a {}?", "Explain {}.", "what is {}")
    return [
        Question(
            with_passages(forms[index % 3].format(passage.topic), (passage, PASSAGES[(index + 1) % len(PASSAGES)])),
            passage.text.split(". ")[0].rstrip("."),
        )
        for index, passage in enumerate(PASSAGES)
    ]


CODE = (
    '```python\ndef area(width, height=2):\n    """Return the area of a rectangle."""\n    return width * height\n```'
)

QUESTIONS = (
    *referenced(),
    Question(f"What does `area` do?\n\n{CODE}", "Return the area of a rectangle"),
    Question(f"What does `area` return?\n\n{CODE}", "width * height"),
    Question(f"What is the default of `height`?\n\n{CODE}", "2"),
    Question(
        "Repeat this text:\n\nThe quick brown fox jumps over the lazy dog.",
        "The quick brown fox jumps over the lazy dog.",
    ),
    Question("Hello!"),
    Question("hi there"),
    Question("What can you do?"),
    Question("who are you"),
    Question("Thanks a lot!"),
    Question("Goodbye"),
    Question("What is the capital of Norway?"),
    Question("Write a poem about the sea."),
    Question("Why are you so fast?"),
    Question("Can you rename a variable?"),
    Question("How do I use a larger model?"),
    Question("Do you need the internet?"),
    Question("Tell me a joke."),
    Question("How were you trained?"),
)
