"""`specchat bench inspect`: what a head or a model is, and what is said of a draft model for a target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specchat.cli.main import run
from specchat.devices import CPU
from specchat.hub.local_models import locate_model
from specchat_bench.pairing import PairMember, pair_member, pair_warnings
from tests.drafters.published import published
from tests.drafters.test_detect import UNSUPPORTED, stored
from tests.each_row import each_row
from tests.gguf_models import write_gguf


@pytest.fixture
def printed(capsys):
    """Returns a function that inspects, and returns what is printed."""

    def inspect(*arguments: str) -> str:
        assert 0 == run(["bench", "inspect", *arguments])
        return capsys.readouterr().out

    return inspect


def test_a_head_is_shown_with_its_format_the_evidence_and_that_it_fits(printed):
    text = printed("embedded/eagle3", "--target", "embedded")

    assert "SafeAILab EAGLE-3" in text
    assert "fc.weight [256, 768]: 3 hidden states of size 256" in text
    assert "4096 of 8192 tokens" in text
    assert "fits" in text


def test_a_head_that_does_not_fit_is_refused(tmp_path, capsys):
    folder = published("eagle3").save(tmp_path)

    assert 7 == run(["bench", "inspect", str(folder), "--target", "embedded"])

    printed = capsys.readouterr()
    assert "size 16" in printed.err
    assert "has 256" in printed.err
    assert 1 == printed.err.count("\n")


def test_an_unsupported_head_can_be_inspected(printed, tmp_path):
    folder = stored(tmp_path, *UNSUPPORTED["two layers"][:2])

    assert "not supported yet: more than one MTP layer" in printed(str(folder))
    assert 7 == run(["bench", "inspect", str(folder), "--target", "embedded"])


def test_a_missing_head_is_exit_7_and_a_usage_error_is_exit_2(capsys):
    for name in ("/nowhere/at/all", "embedded/target", "embedded/gone"):
        assert 7 == run(["bench", "inspect", name]), name
    assert 2 == run(["bench", "inspect", "embedded/mtp", "--test"])
    assert 4 == capsys.readouterr().err.count("specchat: ")


def test_a_self_test_shows_how_well_head_and_target_agree(printed):
    assert "of 120 positions, by depth" in printed("embedded/mtp", "--target", "embedded", "--test")


def test_a_model_is_described_and_its_draft_is_warned_of(printed, tmp_path):
    text = printed("Qwen/Qwen2.5-Coder-0.5B-Instruct", "--target", "Qwen3-8B")

    assert "a qwen2 model of 24 layers, from the catalog" in text
    assert (
        "warning   Qwen/Qwen2.5-Coder-0.5B-Instruct has the tokens of qwen2.5 and Qwen/Qwen3-8B those of qwen3" in text
    )
    assert "parameters" in printed(str(write_gguf(tmp_path / "tiny.gguf")))
    assert "advice    not recommended: superseded by Gemma 4" in printed("google/gemma-3-4b-it")


def test_a_draft_on_this_disk_is_weighed(printed):
    assert "embedded/draft has 23% of the parameters of embedded" in printed("embedded/draft", "--target", "embedded")


def test_a_draft_of_another_token_family_is_a_warning():
    draft, target = (pair_member(locate_model(name)) for name in ("Qwen2.5-Coder-0.5B-Instruct", "Qwen3-8B"))

    assert "has the tokens of qwen2.5 and Qwen/Qwen3-8B those of qwen3" in next(pair_warnings(draft, target))


def test_equal_ids_of_two_tokenizers_are_counted():
    target = PairMember("t", 1000, 4, vocabulary={"a": 0, "b": 1, "c": 2, "d": 3})
    draft = PairMember("d", 100, 1, vocabulary={"a": 0, "b": 1, "c": 3, "x": 2})

    assert "50.0% of the 4 ids of d are the same in t" in next(pair_warnings(draft, target))


def test_a_draft_of_the_right_family_and_size_has_no_warning():
    assert [] == list(
        pair_warnings(PairMember("d", 100, 2, "x", None, True), PairMember("t", 1000, 8, "x", None, True))
    )


@each_row("draft, message", [
    (PairMember("d", 330, 2, is_instruct=True), "d has 33% of the parameters of t; 5% to 20% is best"),
    (PairMember("d", 10, 2, is_instruct=True), "d has 1.0% of the parameters of t"),
    (PairMember("d", 100, 7, is_instruct=True), "d has 7 layers and t 8"),
    (PairMember("d", 100, 2, is_instruct=False), "d has no chat template and t has one"),
])  # fmt: skip
def test_common_mistakes_are_warnings_with_figures(draft, message):
    (line,) = pair_warnings(draft, PairMember("t", 1000, 8, is_instruct=True))

    assert message in line


def test_many_layers_are_no_problem_on_a_cpu_or_with_cuda_graphs():
    target, deep = PairMember("t", 1000, 8), PairMember("d", 100, 7)

    assert [] == list(pair_warnings(deep, target, kind=CPU))
    assert [] == list(pair_warnings(replace(deep, has_cuda_graphs=True), target))


@each_row("name, has_cuda_graphs", [
    ("Qwen2.5-Coder-0.5B-Instruct", True), ("Qwen3.5-9B", True), ("Qwen3.6-35B-A3B", True),
    ("GLM-4.7-Flash", False),
])  # fmt: skip
def test_forward_llama_has_cuda_graphs(name, has_cuda_graphs):
    assert has_cuda_graphs == pair_member(locate_model(name)).has_cuda_graphs


def test_the_embedded_pair_shares_its_tokens():
    draft, target = (pair_member(locate_model(f"embedded/{role}")) for role in ("draft", "target"))

    assert draft.vocabulary and draft.vocabulary == target.vocabulary
    assert draft.is_instruct and target.is_instruct
