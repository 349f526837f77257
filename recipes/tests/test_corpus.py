"""Validation data is not part of training."""

import random

import pytest

from recipes.corpus import read_documents, read_interpreter_rows, without_licence_header
from recipes.evaluate import edit_tasks
from recipes.training_rows import Encoder, instruction_rows, pretraining_rows


def test_validation_files_are_not_in_training_rows(corpus, tokenizer):
    encoder = Encoder(tokenizer)
    rows = [*pretraining_rows(encoder, corpus, 3000, 1), *instruction_rows(encoder, corpus, 6000, 1)]

    texts = [tokenizer.decode(row.tokens) for row in rows]

    assert len(rows) > 20
    assert not any("Secret" in text for text in texts)


def test_the_evaluation_reads_validation_files_only(corpus):
    tasks = edit_tasks(corpus, per_kind=1, longest_lines=60, seed=1)

    assert all(
        "SecretBasket" in edit.before or "Basket" not in edit.before for edits in tasks.values() for edit in edits
    )
    assert not any(document.path == "shop.py" for document in read_documents(corpus, validation=True))


@pytest.mark.full
def test_without_a_corpus_the_interpreter_is_split_by_file():
    rows = list(read_interpreter_rows())
    validation = {row["path"] for row in rows if row["val"]}

    assert 0.01 < len(validation) / len(rows) < 0.15
    assert validation.isdisjoint(row["path"] for row in rows if not row["val"])


def test_a_licence_header_is_removed_and_other_comments_stay():
    assert "x = 1\n" == without_licence_header("# Copyright 2020 Somebody\n# All rights reserved.\n\nx = 1\n")
    assert "# how to count\nx = 1\n" == without_licence_header("# how to count\nx = 1\n")


def test_only_the_answer_has_loss_and_changed_tokens_have_more(corpus, tokenizer):
    from recipes.edit_example import Edit

    edit = Edit("constant", "Set `rate` to 7", "rate = 3\nother = 4\n", "rate = 7\nother = 4\n")
    row = Encoder(tokenizer).edit(edit, random.Random(4))

    weighed = {
        tokenizer.decode([token]): weight for token, weight in zip(row.tokens, row.weights, strict=True) if weight
    }
    assert 4.0 == weighed["7"]
    assert 1.0 == weighed["4"]
    assert "Set" not in weighed
