"""The speculation counters of metrics pages; every number can be computed by hand."""

from __future__ import annotations

from metrics_pages import LLAMA_CPP, SGLANG, SGLANG_WIDTH, SILENT, VLLM

from specchat_fleet.server_metrics import SpecDecodeCounts, counts_between, counts_of_response, has_speculation
from tests.each_row import each_row

OLD = {"drafts": 100, "drafted": 300, "accepted": 50}
NEW = {"drafts": 110, "drafted": 330, "accepted": 70}


@each_row("page", [VLLM, LLAMA_CPP])
def test_counters_of_vllm_and_llama_cpp_are_read_by_what_they_grew(page):
    assert counts_between(page.format(**OLD), page.format(**NEW)) == SpecDecodeCounts(
        verify_steps=10, draft_tokens=30, accepted_tokens=20
    )


def test_sglang_counts_come_from_its_steps_and_tokens():
    page = SGLANG + SGLANG_WIDTH
    before, after = page.format(generated=100, requests=1, calls=40), page.format(generated=126, requests=2, calls=50)

    # 26 tokens, one of them from the prompt and 10 from the passes themselves; 3 guesses in each pass
    assert counts_between(before, after) == SpecDecodeCounts(verify_steps=10, draft_tokens=30, accepted_tokens=15)


def test_without_a_draft_length_sglang_counts_come_from_its_acceptance_rate():
    before = SGLANG.format(generated=100, requests=1, calls=40)
    after = SGLANG.format(generated=126, requests=2, calls=50)

    assert counts_between(before, after) == SpecDecodeCounts(verify_steps=10, draft_tokens=30, accepted_tokens=15)


def test_a_page_without_speculation_counters_has_no_counts():
    assert counts_between(SILENT, SILENT) is None
    assert counts_between(None, VLLM.format(**NEW)) is None
    assert not has_speculation(SILENT)
    assert has_speculation(VLLM.format(**NEW)) and has_speculation(SGLANG.format(generated=1, requests=1, calls=1))


def test_an_invalid_or_truncated_page_is_no_error():
    whole = VLLM.format(**NEW)
    half = whole[: whole.index("vllm:spec_decode_num_draft_tokens_total{")] + "{"

    assert counts_between("<html>", "<html>") is None
    assert counts_between(VLLM.format(**OLD), half) == SpecDecodeCounts(
        verify_steps=10, draft_tokens=0, accepted_tokens=0
    )


def test_counters_that_were_reset_are_ignored():
    grown = counts_between(VLLM.format(**NEW), VLLM.format(**OLD))

    assert grown is not None and grown.scaled_to(10) is None


def test_other_requests_change_the_acceptance_rate_but_not_the_number_of_tokens():
    grown = SpecDecodeCounts(verify_steps=100, draft_tokens=300, accepted_tokens=100)

    assert grown.scaled_to(20) == SpecDecodeCounts(verify_steps=10, draft_tokens=30, accepted_tokens=10)
    assert grown.scaled_to(500) == grown


@each_row("told", [None, {}, {"speculative_decoding": None}, {"speculative_decoding": {"num_spec_steps": 1}}, "what"])
def test_a_response_without_speculation_metrics_has_no_counts(told):
    assert counts_of_response({"metrics": told}) is None
    assert counts_of_response({"timings": told}) is None


SUMS = {"num_spec_steps": 10, "num_draft_tokens": 20, "num_accepted_draft_tokens": 9}


@each_row(
    "name, told, tested, accepted",
    [
        ("steps", {"per_step_drafted": [2, 2, 1, 0], "per_step_accepted": [2, 0, 1, 0]}, (3, 1), (2, 1)),
        ("a histogram", {"acceptance_histogram": [5, 1, 4], "num_spec_tokens": 2}, (10, 5), (5, 4)),
        ("shorter drafts in it", {"acceptance_histogram": [5, 1, 4], "num_spec_tokens": 3}, (), ()),
        ("a histogram of other sums", {"acceptance_histogram": [5, 1, 5], "num_spec_tokens": 2}, (), ()),
        ("more accepted than drafted", {"per_step_drafted": [1], "per_step_accepted": [2]}, (), ()),
        ("less than none", {"per_step_drafted": [1], "per_step_accepted": [-1]}, (), ()),
        ("one step too few", {"per_step_drafted": [1, 1], "per_step_accepted": [1]}, (), ()),
        ("a step that is endless", {"per_step_drafted": [10**9], "per_step_accepted": [10**9]}, (), ()),
        ("steps that are texts", {"per_step_drafted": ["2"], "per_step_accepted": ["1"]}, (), ()),
        ("numbers for lists", {"per_step_drafted": 2, "per_step_accepted": 1, "acceptance_histogram": 4}, (), ()),
        ("negative counts", {"acceptance_histogram": [-5, 11, 4], "num_spec_tokens": 2}, (), ()),
    ],
)
def test_acceptance_by_depth_is_known_from_steps_and_from_drafts_of_one_length(name, told, tested, accepted):
    counts = counts_of_response({"metrics": {"speculative_decoding": SUMS | told}})

    assert counts is not None and counts.scaled_to(5) is not None
    assert (tested, accepted) == (tuple(counts.acceptance.tested), tuple(counts.acceptance.accepted))
