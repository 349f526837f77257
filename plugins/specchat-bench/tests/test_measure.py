"""A sweep: every combination beside plain decoding, kept as it goes, and said in numbers and words."""

import csv
import io
import json
from dataclasses import replace
from itertools import islice

import pytest

from specchat.chat.events import TARGET, CommittedToken, StepDone, Totals
from specchat.chat.request import Request
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import InputError, SpecchatError
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat_bench.columns import COLUMNS, as_csv, as_json, as_table, group_samples, recommendations
from specchat_bench.combinations import AUTO, PLAIN, Combination, Grid, Sample
from specchat_bench.latency import TimedAnswer
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.measure import (
    WidthLimitedDrafter,
    collect_until_interrupt,
    engine_measurer,
    request_hash,
    requests_by_kind,
    run_combinations,
    split_by_availability,
    warm_up,
)
from specchat_bench.sample_store import SampleStore
from tests.each_row import each_row
from tests.plugins.test_auto import DRAFTING, REQUEST, Listening
from tests.test_one_number import RATE, STEPS, of_steps
from tests.tiny import speaking, tiny_profile

GRID = Grid(("draft", "lookup"), budgets=(2, 4), max_tokens=12)
PROMPTS = {"edit": [Request("abcabc abcabc abc")], "chat": [Request("why"), Request("how"), Request("when")]}


@pytest.fixture(scope="module")
def engine():
    folder = str(speaking())
    return load_engine(Profile().override({"models.target": folder, "models.draft": folder}))


@pytest.fixture(scope="module")
def rows(engine):
    return group_samples(run_combinations(engine_measurer(engine), GRID, PROMPTS, 2, SampleStore()), GRID)


def test_what_measures_recalls_no_other_conversation():
    folder = str(speaking())

    engine = load_engine_here(Profile().override({"models.target": folder, "models.draft": ""}))

    assert engine.resources.past_texts is None


def fake_answer(request: Request, cell: Combination) -> TimedAnswer:
    """An answer that follows from its combination: budget 4 is twice as fast as plain, budget 2 half as fast."""
    if "too long" in request.text:
        raise SpecchatError("does not fit the window")
    guesses, seconds = tuple(range(cell.budget)), {0: 0.1, 2: 0.2, 4: 0.05}[cell.budget]
    said = *(CommittedToken(id, b"x", "draft") for id in range(cell.budget // 2)), CommittedToken(99, b"x", TARGET)
    step = StepDone(guesses, guesses, said, 0.0, seconds * len(said))
    tokens = 2 * len(said)
    totals = Totals(
        completion_tokens=tokens, steps=2, draft_tokens=2 * cell.budget,
        accepted_by_drafter={cell.drafter: cell.budget},
        draft_seconds=0.25 * seconds * tokens, verify_seconds=0.75 * seconds * tokens,
    )  # fmt: skip
    return TimedAnswer("text", (step, step), totals, 0.3, (0.01, 0.02), 1.0, 0.9)


def test_each_combination_stands_behind_plain_decoding_of_its_kind(rows):
    names = [row.combination.name for row in rows if row.combination.kind == "chat"]

    assert names == ["plain", "draft 2", "draft 4", "lookup 2", "lookup 4"]
    assert ["edit"] * 5 + ["chat"] * 5 == [row.combination.kind for row in rows]
    assert all(len(row.samples) == (1 if row.combination.kind == "edit" else 2) for row in rows)


def test_no_combination_changes_the_text(rows):
    assert all(row.identical_answers == len(row.samples) for row in rows)


def test_a_draft_that_is_the_target_is_always_right(rows):
    draft = next(row for row in rows if row.combination.name == "draft 4")

    assert (1.0, 1.0) == (draft.acceptance_rate, draft.node_share)
    assert draft.predicted_tokens_per_step == pytest.approx(draft.tokens_per_step)
    assert draft.tokens_per_step > next(row for row in rows if row.combination.name == "draft 2").tokens_per_step
    assert 0 < draft.cost_per_draft_token


def test_plain_decoding_is_as_fast_as_itself_and_as_predicted(rows):
    plain = rows[0]

    assert (PLAIN, 1.0, 1.0, None) == (
        plain.combination.name,
        plain.median_speedup,
        plain.tokens_per_step,
        plain.acceptance_rate,
    )
    assert plain.predicted_speedup == pytest.approx(1.0, rel=1e-6)


def test_plain_decoding_is_measured_beside_every_two_others():
    asked: list[str] = []

    def ask(request: Request, cell: Combination) -> TimedAnswer:
        asked.append(cell.drafter)
        return fake_answer(request, cell)

    samples = list(run_combinations(ask, GRID, {"chat": [Request("why")]}, 1, SampleStore()))

    assert 5 == len(samples)
    assert ["plain", "other", "other", "plain", "other", "other", "plain"] == [
        each if each == PLAIN else "other" for each in asked
    ]
    assert GRID.answer_count(1) == len(asked)


def test_numbers_follow_from_the_answers():
    rows = group_samples(run_combinations(fake_answer, GRID, {"chat": [Request("why")]}, 1, SampleStore()), GRID)
    chat = {row.combination.name: row for row in rows}
    draft = chat["draft 4"]

    assert [0.5, 2.0] == pytest.approx([chat["draft 2"].median_speedup, draft.median_speedup])
    assert 20 == pytest.approx(draft.tokens_per_second)
    assert 3.0 == draft.tokens_per_step
    assert (1.0, 0.0) == (draft.acceptance_at_depth(2), draft.acceptance_at_depth(3))
    assert draft.acceptance_rate == pytest.approx(4 / 6)  # four held, and in both passes one fell
    assert draft.relative_pass_cost == pytest.approx(0.75 * 0.05 * 3 / 0.1)
    assert (0.01, 0.02, 0.3, 1.0) == (
        draft.text_interval(0.5),
        draft.text_interval(0.95),
        draft.median_ttft_seconds,
        draft.median_request_seconds,
    )


def test_the_acceptance_is_that_of_every_other_place():
    answer = TimedAnswer("", STEPS, of_steps(), 0.3, (), 1.0, 1.0)
    samples = run_combinations(lambda _request, _cell: answer, GRID, {"chat": [Request("why")]}, 1, SampleStore())
    drafted = next(row for row in group_samples(samples, GRID) if row.combination.drafter != PLAIN)

    assert (drafted.acceptance_rate, drafted.node_share) == (RATE, 4 / 18)


def test_recommendations_name_the_fastest_drafter():
    said = recommendations(group_samples(run_combinations(fake_answer, GRID, PROMPTS, 1, SampleStore()), GRID))

    assert said["chat T=0"].startswith("draft 4, 2.00 times plain (2.00 to 2.00); then lookup 4, 2.00")
    only_slow = [
        row
        for row in group_samples(run_combinations(fake_answer, GRID, PROMPTS, 1, SampleStore()), GRID)
        if row.combination.budget != 4
    ]
    assert (
        "no drafter is faster than plain decoding; best drafter: draft 2, 0.50"
        == recommendations(only_slow)["chat T=0"]
    )


def test_auto_alone_says_nothing_of_drafters_that_were_not_measured():
    rows = group_samples(run_combinations(fake_answer, GRID, PROMPTS, 1, SampleStore()), GRID)
    plain = [row for row in rows if row.combination.drafter == PLAIN]
    drafted = next(row for row in rows if (row.combination.kind, row.combination.budget) == ("chat", 4))
    auto = replace(drafted, combination=replace(drafted.combination, drafter=AUTO))

    assert recommendations([*plain, auto])["chat T=0"] == "auto: 2.00 times plain"
    assert recommendations(plain)["chat T=0"] == "only plain decoding was measured"


def test_an_interrupted_bench_resumes_and_gives_the_same_table(tmp_path):
    path, asked = tmp_path / "kept.jsonl", []

    def ask(request: Request, cell: Combination) -> TimedAnswer:
        asked.append(cell)
        return fake_answer(request, cell)

    whole = group_samples(run_combinations(fake_answer, GRID, PROMPTS, 2, SampleStore()), GRID)
    begun = list(islice(run_combinations(ask, GRID, PROMPTS, 2, SampleStore(path)), 7))
    with path.open("a") as file:
        file.write('\n{"combination": {"kind": "cut o')
    first = len(asked)
    resumed = group_samples(run_combinations(ask, GRID, PROMPTS, 2, SampleStore(path)), GRID)
    again = group_samples(run_combinations(ask, GRID, PROMPTS, 2, SampleStore(path)), GRID)

    assert 7 == len(begun)
    assert as_table(whole) == as_table(resumed) == as_table(again)
    assert as_csv(whole) == as_csv(resumed)
    assert 15 > len([cell for cell in asked[first:] if cell.drafter != PLAIN]) > 0


def test_a_disk_that_fails_loses_only_the_resuming(tmp_path):
    (tmp_path / "file").write_text("")
    store = SampleStore(tmp_path / "file" / "kept.jsonl")

    assert 10 == len(list(run_combinations(fake_answer, GRID, PROMPTS, 1, store)))


def test_what_was_discarded_is_measured_anew(tmp_path):
    path = tmp_path / "kept.jsonl"
    store = SampleStore(path)
    list(run_combinations(fake_answer, GRID, PROMPTS, 1, store))
    assert 10 == len(SampleStore(path))

    store.discard()

    assert 0 == len(SampleStore(path))


def test_ctrl_c_ends_it_with_what_there_is():
    count = 0

    def ask(request: Request, cell: Combination) -> TimedAnswer:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return fake_answer(request, cell)

    collected = collect_until_interrupt(run_combinations(ask, GRID, PROMPTS, 1, SampleStore()))

    assert not collected.is_complete
    assert 2 == len(collected.samples)
    assert collect_until_interrupt(run_combinations(fake_answer, GRID, PROMPTS, 1, SampleStore())).is_complete


def test_a_prompt_that_does_not_fit_makes_room_for_the_next():
    told: list[str] = []
    prompts = {"chat": [Request("too long"), Request("why")]}

    samples = list(run_combinations(fake_answer, GRID, prompts, 1, SampleStore(), told.append))

    assert {request_hash(Request("why", max_tokens=12, seed=7, temperature=0.0))} == {
        sample.prompt_hash for sample in samples
    }
    assert "chat T=0 1/1: left out: does not fit the window" == told[0]
    assert 1.0 == warm_up(fake_answer, GRID, prompts)


def test_widths_do_not_apply_to_auto():
    cells = Grid(("auto", "draft"), budgets=(4,), widths=(1, 2)).combinations("chat", 0.0)

    assert ["plain", "auto 4", "draft 4 by 1", "draft 4 by 2"] == [cell.name for cell in cells]


class Bush(Drafter):
    """Two guesses behind each, three deep."""

    name = "bush"

    def propose(self, context: DraftContext) -> DraftTree:
        tree = DraftTree(context.tokens[-1])
        nodes = [0]
        for depth in range(3):
            nodes = [tree.add(10 * depth + place, node, self.name) for node in nodes for place in (1, 2)]
        return tree


@each_row("width, depths", [(1, [1, 2, 3]), (2, [1, 1, 2, 2, 3, 3]), (9, [1] * 2 + [2] * 4 + [3] * 8)])
def test_a_narrow_tree_has_so_many_guesses_of_each_depth(width, depths):
    tree = WidthLimitedDrafter(Bush(), width).propose(DraftContext([5], Sampler(), 16))

    assert depths == sorted(tree.depths[1:])
    assert tree.path_tokens(1) == [1]  # the likeliest comes first


def test_a_width_limit_changes_no_text(engine):
    ask, cell = engine_measurer(engine), Combination("edit", 0.0, "lookup", 8)
    asked = Request("abcabc abcabc abc", temperature=0.0, max_tokens=12)

    wide, narrow = ask(asked, cell), ask(asked, replace(cell, width=1))

    assert wide.text == narrow.text
    assert isinstance(WidthLimitedDrafter(PromptLookup(), 1).drafter, PromptLookup)


def test_drafters_without_a_model_are_skipped_with_their_reason(engine):
    runnable, skipped = split_by_availability(engine, ("plain", "lookup", "suffix", "draft", "auto", "eagle3"))

    assert ("plain", "lookup", "suffix", "draft", "auto") == runnable
    assert "variant 'eagle3' needs an EAGLE-3 head" in skipped["eagle3"]


def test_plain_decoding_drafts_nothing(rows):
    plain = rows[0]

    assert plain.acceptance_at_depth(1) is None
    assert 1.0 == next(row for row in rows if row.combination.name == "draft 4").acceptance_at_depth(1)


def test_the_interval_of_the_median_holds_the_median(rows):
    for row in rows:
        low, high = row.speedup_interval
        assert low <= row.median_speedup <= high


def test_a_tree_is_as_deep_as_its_longest_branch():
    assert 2 == StepDone((5, 6, 7), (0, 0, 2), (), 0.0, 0.0).depth
    assert 0 == StepDone((), (), (), 0.0, 0.0).depth


def test_the_table_has_the_chosen_columns(rows):
    table = as_table(rows, ["kind", "drafter", "accepted_at_1"])

    assert "| kind | drafter | at 1 |" == table.splitlines()[0]
    assert "| edit | plain |  |" == table.splitlines()[2]
    assert "| edit | draft 2 | 100% |" in table


def test_every_column_stands_in_csv_and_json(rows):
    lines = list(csv.DictReader(io.StringIO(as_csv(rows))))
    whole = json.loads(as_json(rows, {"target": "x"}, {"mtp": "needs a target"}))

    assert list(lines[0]) == list(COLUMNS) == list(whole["rows"][0])
    assert {"schema", "target", "skipped", "recommended", "rows"} == set(whole)
    assert len(rows) == len(lines) == len(whole["rows"])
    assert ("", "1.0") == (lines[0]["acceptance"], lines[1]["acceptance"])
    assert {"edit T=0", "chat T=0"} == set(whole["recommended"])


def test_a_file_that_is_called_as_a_kind_says_what_its_prompts_are(tmp_path):
    (tmp_path / "creative.jsonl").write_text(2 * (json.dumps({"turns": ["Why is the sky blue?"]}) + "\n"))
    (tmp_path / "commits.jsonl").write_text(json.dumps({"instruction": "Rename a to b.", "before": "a = 1\n"}))

    found = requests_by_kind(Profile(), tmp_path, 3)

    assert ["chat", "creative"] == list(found)  # without rules everything else is chat
    assert ["Why is the sky blue?"] == [request.text for request in found["creative"]]  # duplicates are asked once
    assert "edit" == found["chat"][0].task
    assert set(requests_by_kind(Profile(), None, 1)) >= {"edit", "code", "chat"}


@each_row("content", ["", "\n\n"])
def test_a_file_without_prompts_is_said_to_be_one(tmp_path, content):
    (tmp_path / "none.jsonl").write_text(content)

    with pytest.raises(InputError, match="no prompt there"):
        requests_by_kind(Profile(), tmp_path, 1)


def test_a_sample_survives_its_file(tmp_path):
    sample = Sample(
        Combination("chat", 0.8, "draft", 4, 2), "key", 10, 4, 16, 6, 1, 2, {4: 4}, {1: 4, 2: 2},
        0.1, 0.2, 10, 0.5, 0.01,
        (0.1, 0.2), 0.9, True,
    )  # fmt: skip
    SampleStore(tmp_path / "deep" / "kept.jsonl").add(sample)

    assert sample == SampleStore(tmp_path / "deep" / "kept.jsonl").get(sample.combination, "key")
    assert sample.speedup == pytest.approx(0.05 / 0.03)


def test_a_drafter_of_a_plugin_is_measured_with_a_limited_width(install):
    install("drafting", DRAFTING)
    import drafting

    called: list[str] = []
    drafting.knowing = lambda _parts: Listening(called)

    engine_measurer(load_engine(tiny_profile()))(REQUEST, Combination("chat", 0.0, "knowing", width=1))

    assert {"observe", "propose"} <= set(called)
