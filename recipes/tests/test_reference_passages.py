"""The reference corpus has complete passages only."""

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


def test_cross_references_are_followed_and_short_entries_left_out(tmp_path):
    (tmp_path / "rows").mkdir()
    with gzip.open(tmp_path / "rows" / "glossary.jsonl.gz", "wt") as out:
        out.write("".join(json.dumps(term) + "\n" for term in TERMS))

    texts = {passage.topic: passage.text for passage in collect_passages(tmp_path)}

    assert "global interpreter lock: The mechanism by which only one thread runs bytecode at a time." == texts["GIL"]
    assert "short" not in texts


def test_without_a_corpus_the_reference_explains_specchat(tmp_path):
    write_passages(collect_passages(None), tmp_path / "reference.jsonl")

    assert "EAGLE" == read_reference_corpus(tmp_path / "reference.jsonl").search("what is EAGLE")[0].topic
