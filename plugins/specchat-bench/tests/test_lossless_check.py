"""`specchat verify`: a whole engine is trusted, and one with a planted fault is not."""

from __future__ import annotations

import json

import pytest
import torch

from specchat.engine import sampling
from specchat.engine.cache import KVCache
from specchat.errors import InputError, UsageError
from specchat.history.history_reader import StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile
from specchat_bench import lossless_check, tokenized_prompts
from specchat_bench.lossless_check import VerifyReport, VerifySettings, chi_square_p_value, verify_lossless
from specchat_bench.verify_command import NotLosslessError
from tests.each_row import each_row
from tests.tiny import speaking

PROMPTS = ([7, 3, 9, 12, 40, 41, 42, 60, 61] * 3, [30, 31, 32, 90, 30, 31])


def engine(**settings: object) -> Engine:
    models = {"models.target": str(speaking()), "models.draft": str(speaking(layers=1, seed=2)), "models.heads": ()}
    return load_engine(Profile().override({**models, "limits.context": 512, "limits.answer": 64, **settings}))


def tried(made: Engine, draws: int = 0, variants: tuple[str, ...] = ("suffix", "draft", "lookup")) -> VerifyReport:
    return verify_lossless(made, VerifySettings(PROMPTS, variants, max_tokens=24, draws=draws))


def test_an_engine_that_keeps_its_law_is_trusted():
    report = tried(engine(), draws=150)

    assert report.is_lossless
    assert [(verdict.identical_answers, verdict.answers) for verdict in report.results] == [(2, 2)] * 6
    assert "first token" in {fit.token_position for fit in report.distribution_tests}


def test_a_cache_that_commits_one_row_too_far_is_found(monkeypatch):
    right = KVCache.commit

    def shifted(cache: KVCache, path: list[int]) -> None:
        right(cache, [*path[:1], *(node + 1 for node in path[1:])] if len(path) > 1 else path)

    monkeypatch.setattr(KVCache, "commit", shifted)
    report = tried(engine())

    assert not report.is_lossless
    assert any(verdict.mismatches for verdict in report.results)


def test_a_walk_that_takes_one_guess_too_many_is_found(monkeypatch):
    def greedy(tree, picks):
        path = [0]
        while children := [node for node, parent in enumerate(tree.parents) if parent == path[-1]]:
            path.append(children[0])
            if picks[path[-2]] != tree.tokens[path[-1]]:
                break
        return path

    monkeypatch.setattr("specchat.engine.decode.accept", greedy)

    assert not tried(engine()).is_lossless


@pytest.mark.full
def test_dice_that_are_thrown_twice_the_same_are_found(monkeypatch):
    monkeypatch.setattr(sampling, "_hash_keys", lambda seed, position: (seed % 3, 5))

    report = tried(engine(), draws=200, variants=("draft",))

    assert any(fit.is_failure for fit in report.distribution_tests)


def test_near_ties_are_counted_and_are_no_faults(monkeypatch):
    monkeypatch.setitem(lossless_check.NEAR_TIE_MARGIN, torch.float32, 1e9)
    monkeypatch.setattr(lossless_check, "RANKED_TOKENS", 10**6)
    monkeypatch.setattr("specchat.engine.decode.accept", lambda tree, _picks: [0, 1] if len(tree) > 1 else [0])

    loaded = engine()
    loaded.models.target.is_exact = False  # as where kernels are not batch invariant
    report = tried(loaded, variants=("draft",))

    assert report.near_tie_tokens == report.sampled_tokens > 0
    assert any(verdict.near_ties for verdict in report.results)
    assert report.is_lossless


@pytest.mark.full
@pytest.mark.parametrize("exact", [False, True])
def test_in_bfloat16(exact):
    report = tried(engine(**{"models.dtype": "bfloat16", "speculation.exact": exact}))

    assert report.is_lossless
    assert report.dtype == "bfloat16"
    if report.exact or exact:
        assert not any(verdict.near_ties for verdict in report.results)


def test_who_cannot_guess_here_is_told():
    (verdict, _warm) = tried(engine(), variants=("eagle3",)).results

    assert (verdict.answers, verdict.skip_reason) == (0, "not with these models")


def test_the_chance_of_a_distance_is_that_of_the_tables():
    chances = torch.tensor([0.25, 0.25, 0.25, 0.25], dtype=torch.float64)

    assert chi_square_p_value({0: 25, 1: 25, 2: 25, 3: 25}, chances) == pytest.approx(1.0)
    assert chi_square_p_value({0: 37, 1: 21, 2: 21, 3: 21}, chances) == pytest.approx(
        0.0531, abs=1e-3
    )  # 7.68, 3 degrees
    assert chi_square_p_value({0: 100}, torch.tensor([1.0, 0.0], dtype=torch.float64)) == 1.0


def test_rare_tokens_are_one_cell():
    chances = torch.tensor([0.9] + [0.1 / 50] * 50, dtype=torch.float64)

    assert chi_square_p_value({0: 90, **dict.fromkeys(range(1, 11), 1)}, chances) > 0.9


def test_a_conversation_that_is_kept_is_replayed(tmp_path, capsys):
    history = HistoryWriter(tmp_path / "history.db")
    for number, prompt in enumerate(PROMPTS):
        turn = chr(ord("a") + number)
        history.start_turn(Thread("talk", "talk"), turn, None if number == 0 else "a", {"text": "and?"})
        history.finish_turn(turn, StoredAnswer("so", (1,), prompt_ids=prompt), "stop", {"tokens": 1})
    history.close()

    assert run_verify("--session", "talk", "--variants", "suffix") == 0
    assert "suffix          0  2 of 2" in capsys.readouterr().out


def test_prompts_of_a_file_are_decoded(tmp_path, capsys):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in ("one two", "three four", "five")))

    assert run_verify("--prompts", str(file), "--variants", "suffix") == 0
    assert "suffix          0  2 of 2" in capsys.readouterr().out


def test_prompts_that_no_window_holds_are_said(tmp_path, capsys):
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"turns": ["one two " * 20_000]}))

    assert run_verify("--prompts", str(file), "--variants", "suffix") == InputError.exit_code
    assert "none of the prompts fits the context window" in capsys.readouterr().err


def run_verify(*arguments: str) -> int:
    from specchat.cli.main import run

    models = ("--target", str(speaking()), "--draft", str(speaking(layers=1, seed=2)))
    return run(["verify", *models, "--count", "2", "--limit", "16", "--draws", "0", *arguments])


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(tokenized_prompts, "history_path", lambda: tmp_path / "history.db")


def test_the_command_says_so_and_leaves_with_zero(capsys):
    assert run_verify("--variants", "suffix,draft") == 0

    printed = capsys.readouterr()
    assert printed.out.endswith("decoding is lossless here\n")
    assert "suffix          0  2 of 2" in printed.out


def test_ctrl_c_keeps_what_was_compared(monkeypatch, capsys):
    compared, whole = list[str](), lossless_check._generate

    def interrupted(made, variant, *rest, **options):
        compared.append(variant)
        if len(compared) == 5:
            raise KeyboardInterrupt
        return whole(made, variant, *rest, **options)

    monkeypatch.setattr(lossless_check, "_generate", interrupted)

    assert run_verify("--variants", "suffix") == 130
    printed = capsys.readouterr().out
    assert "suffix          0  2 of 2" in printed
    assert printed.endswith("stopped before the end; decoding is lossless here, as far as it was compared\n")


def test_the_progress_counts_all_of_the_work():
    shares = list[float]()
    settings = VerifySettings(PROMPTS, ("suffix", "eagle3"), max_tokens=8, draws=20)

    verify_lossless(engine(), settings, lambda _label, done, total: shares.append(done / total))

    assert shares == sorted(shares) and shares[-1] == 1.0


def test_the_command_leaves_with_a_code_of_its_own_when_a_text_changed(monkeypatch, capsys):
    monkeypatch.setattr("specchat.engine.decode.accept", lambda tree, _picks: [0, 1] if len(tree) > 1 else [0])

    assert run_verify("--variants", "draft", "--json") == NotLosslessError.exit_code

    report = json.loads(capsys.readouterr().out)
    assert report["lossless"] is False
    assert report["results"][0]["mismatches"]


@each_row(
    "arguments, code, said",
    [
        (("--variants", "nobody"), UsageError.exit_code, "unknown variant 'nobody'"),
        (("--session", "gone", "--prompts", "tests"), UsageError.exit_code, "name one of them"),
        (("--session", "gone"), InputError.exit_code, "gone: no such conversation"),
    ],
)
def test_what_cannot_be_tried_is_one_line(arguments, code, said, capsys):
    assert run_verify(*arguments) == code
    assert said in capsys.readouterr().err
