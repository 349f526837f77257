"""The reference corpus: the right passage for a question, and none for small talk."""

from specchat.chat.reference_corpus import Passage, ReferenceCorpus, read_reference_corpus, with_passages
from specchat.weights.load_options import EMBEDDED
from tests.each_row import each_row

BOOK = ReferenceCorpus(
    [
        Passage("generator", "A function that yields."),
        Passage("generator iterator", "What a generator returns."),
        Passage("list comprehension", "A compact way to make a list, often instead of a generator."),
        Passage("json", "Encode and decode JSON in Python."),
        Passage("What is Python?", "A language."),
    ]
)


@each_row(
    "question, topics",
    [
        ("What is a generator in Python?", ["generator"]),
        ("explain list comprehensions", ["list comprehension"]),
        ("What is a generator iterator?", ["generator iterator", "generator"]),
        ("What is the json module for?", ["json"]),
        ("What is Python?", ["What is Python?"]),
    ],
)
def test_a_question_finds_the_passages_of_its_topics(question, topics):
    assert topics == [passage.topic for passage in BOOK.search(question)]


@each_row("words", ["Hello!", "thanks a lot", "What can you do?", "why is Python slow", "", "rename x"])
def test_small_talk_finds_nothing(words):
    assert () == BOOK.search(words)


def test_passages_follow_the_question():
    shown = with_passages("What is json?", BOOK.search("What is json?"))

    assert "What is json?\n\nReference:\njson: Encode and decode JSON in Python." == shown
    assert "hello" == with_passages("hello", ())


def test_a_corpus_is_read_from_a_file(tmp_path):
    path = tmp_path / "book.jsonl"
    path.write_text('{"topic": "queue", "text": "First in, first out."}\n')

    assert "queue" == read_reference_corpus(path).search("what is a queue")[0].topic


def test_the_embedded_corpus_has_generators_and_specchat():
    book = read_reference_corpus(EMBEDDED / "reference.jsonl")

    assert "yield" in book.search("what is a generator in Python?")[0].text
    assert "drafter" in book.search("What is speculative decoding?")[0].text
    assert () == book.search("Hello, how are you?")
