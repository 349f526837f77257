"""The reference is made of passages that say something by themselves."""

import gzip
import json

from recipes.reference_passages import collect_passages, write_passages
from specchat.chat.reference_corpus import read_reference_corpus

TERMS = [
    {
        "term": "global interpreter lock",
        "definition": "The mechanism by which only one thread runs bytecode at a time.",
    },
    {"term": "GIL", "definition": "See `global interpreter lock`."},
    {"term": "short", "definition": "Too short."},
]


def test_a_pointer_is_followed_and_a_stump_left_out(tmp_path):
    (tmp_path / "rows").mkdir()
    with gzip.open(tmp_path / "rows" / "glossary.jsonl.gz", "wt") as out:
        out.write("".join(json.dumps(term) + "\n" for term in TERMS))

    book = {passage.topic: passage.text for passage in collect_passages(tmp_path)}

    assert "global interpreter lock: The mechanism by which only one thread runs bytecode at a time." == book["GIL"]
    assert "short" not in book


def test_without_a_corpus_the_book_still_explains_this_program(tmp_path):
    write_passages(collect_passages(None), tmp_path / "reference.jsonl")

    assert "EAGLE" == read_reference_corpus(tmp_path / "reference.jsonl").search("what is EAGLE")[0].topic
