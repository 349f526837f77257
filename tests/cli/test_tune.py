"""`specchat tune`: what it finds out is where the next start begins, for these models on this machine only."""

from __future__ import annotations

import json
import shutil
from functools import lru_cache
from itertools import cycle, permutations
from pathlib import Path

import pytest

from specchat.bench import measure
from specchat.bench.columns import group_samples
from specchat.bench.combinations import Combination, Grid
from specchat.bench.latency import TimedAnswer
from specchat.bench.measure import run_combinations
from specchat.bench.sample_store import SampleStore
from specchat.bench.tuning import BUDGETS, TuningResult, as_toml, choose_values, record_draft_costs
from specchat.chat.events import CommittedToken, StepDone, Totals
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve
from specchat.cli.main import run
from specchat.engine.cache import bucket_of
from specchat.errors import ProfileError
from specchat.loading.load_engine import load_engine
from specchat.profile import Profile, load_profile, tuned_values
from specchat.profile.toml_lines import parse_toml
from specchat.profile.tuned_values import tuned_path, tuned_source_for
from specchat.profile.validation import merge_sources
from tests.processes import modules_after
from tests.tiny import speaking
from tools.replay_chooser import ReplayedStep, Replayer, Trace, cpu_like_costs, read_traces, seconds_per_token

TRACES = Path(__file__).parents[1] / "chooser" / "traces"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    return tmp_path / "cache"


@pytest.fixture
def models(tmp_path):
    """Models of one's own, to be replaced by others."""
    return str(shutil.copytree(speaking(), tmp_path / "model"))


def overrides(models: str) -> dict[str, object]:
    return {"models.target": models, "models.draft": models}


def tune_by_hand(profile: Profile, text: str = "[speculation]\nbudget = 5\n") -> Path:
    path = tuned_path(profile)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.full
def test_the_next_start_begins_where_tuning_ended(models, capsys):
    words = ["--target", models, "--draft", models, "--count", "1", "--limit", "12"]
    assert run(["tune", *words]) == 0
    out = capsys.readouterr().out
    assert run(["config", "show", "--origin", "--target", models, "--draft", models]) == 0
    shown = capsys.readouterr().out

    profile = load_profile("chat", overrides(models))
    path = tuned_path(profile)
    assert f"at most {profile.speculation.budget} draft tokens in a pass" in out
    assert f"budget = {profile.speculation.budget}  # tuned {path}:" in shown
    assert f"[[drafter_orders]]  # tuned {path}:" in shown
    assert {"edit", "code", "chat"} <= {order.kind for order in profile.drafter_orders}

    engine = load_engine(profile)
    with engine.create_session() as session:
        (curve, *_), draft = engine.models.costs.pass_curves.values(), engine.models.costs.draft_curve("draft", 100)
        assert draft is not None and draft.seconds_up_to(4)
        assert len(curve.seconds_up_to(16)) == 17
        route = choose_route(Request("How do I learn to cook?"), session.models.profile, frozenset(session.drafters))
    assert profile.drafter_order("chat")[0] == route.drafter_order[0]


@pytest.mark.parametrize("change", ["weights", "other", "draft", "dtype", "node", "gpu"])
def test_other_models_and_other_machines_are_not_tuned_by_it(models, change, monkeypatch, tmp_path):
    before = load_profile("chat", overrides(models))
    tune_by_hand(before)
    assert 5 == load_profile("chat", overrides(models)).speculation.budget
    wanted = overrides(models)

    match change:
        case "weights":
            with (Path(models) / "model.safetensors").open("ab") as file:
                file.write(b" ")
        case "other":
            wanted["models.target"] = str(speaking())
        case "draft":
            wanted["models.draft"] = ""
        case "dtype":
            wanted["models.dtype"] = "bfloat16"
        case "node":
            monkeypatch.setattr(tuned_values.platform, "node", lambda: "another")
        case "gpu":
            (tmp_path / "gpus" / "0").mkdir(parents=True)
            (tmp_path / "gpus" / "0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 7\n")
            monkeypatch.setattr(tuned_values, "NVIDIA_GPUS", tmp_path / "gpus")

    assert Profile().speculation.budget == load_profile("chat", wanted).speculation.budget


def test_whatever_somebody_says_counts_more(models, tmp_path):
    tune_by_hand(load_profile("chat", overrides(models)))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("[speculation]\nbudget = 9\n")

    assert 9 == load_profile("chat", overrides(models)).speculation.budget
    assert 7 == load_profile("chat", {**overrides(models), "speculation.budget": 7}).speculation.budget


@pytest.mark.parametrize(
    "text", ["budget", "[speculation]\nbudget = 0\n", "[speculation]\nspeed = 1\n", "[models]\ndtype = 'float32'\n"]
)
def test_a_file_that_makes_no_sense_tunes_nothing(models, text):
    profile = load_profile("chat", overrides(models))
    tune_by_hand(profile, text)

    assert profile == load_profile("chat", overrides(models))
    assert tuned_source_for(profile) is None


def test_what_is_tuned_can_be_seen_and_forgotten(models, capsys):
    words = ["--target", models, "--draft", models]
    path = tune_by_hand(load_profile("chat", overrides(models)))

    assert 0 == run(["tune", "--show", *words]) == run(["tune", "--forget", *words]) == run(["tune", "--show", *words])

    out = capsys.readouterr().out
    assert f"# {path}\n[speculation]\nbudget = 5\n" in out
    assert f"{path}: deleted" in out
    assert "nothing is tuned for" in out
    assert not path.exists()


@pytest.mark.full
def test_ctrl_c_changes_nothing_and_the_same_command_goes_on(models, monkeypatch, capsys):
    words = ["tune", "--target", models, "--draft", models, "--count", "1", "--limit", "4"]
    real, asked = measure.time_answer, []

    def hear(events):
        asked.append(1)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return real(events)

    monkeypatch.setattr(measure, "time_answer", hear)
    assert run(words) == 130
    assert not tuned_path(load_profile("chat", overrides(models))).exists()
    assert "nothing changes, 2 samples are stored" in capsys.readouterr().err

    assert run(words) == 0
    assert "2 samples are stored from before" in capsys.readouterr().err


def heard(request: Request, cell: Combination) -> TimedAnswer:
    """Copying pays on edits with 16 guesses, a draft pays on chat with 4, and nobody else."""
    quick = {"edit suffix 4": 2.0, "edit suffix 16": 3.0, "edit suffix 32": 3.05, "chat draft 4": 1.5}
    speed = 1.0 if cell.drafter == "plain" else quick.get(f"{cell.kind} {cell.name}", 0.8)
    step = StepDone((), (), (CommittedToken(1, b"x", "target"),), 0.0, 1 / speed)
    return TimedAnswer("x", (step,), Totals(completion_tokens=1, steps=1, verify_seconds=1 / speed), 0.1, (), 0.1, 0.1)


def test_what_is_decided_loses_no_kind_its_speed():
    grid = Grid(("suffix", "draft"), budgets=(4, 16, 32))
    rows = group_samples(
        run_combinations(heard, grid, {"edit": [Request("a")], "chat": [Request("b")]}, 1, SampleStore()), grid
    )

    found = choose_values(rows)

    assert TuningResult(16, {"edit": ("suffix", "plain", "draft"), "chat": ("draft", "plain", "suffix")}) == found
    assert "# edit T=0: suffix 32, 3.05 times plain" in as_toml(found, rows, "x on y")


def test_costs_are_learnt_from_the_trees_of_an_answer(tmp_path):
    costs = Costs({1024: Curve({1: 0.01})}, path=tmp_path / "costs.json")
    said = (CommittedToken(1, b"x", "target"),)
    first, later = StepDone((1, 2), (0, 1), said, 9.0, 0.1), StepDone((1, 2), (0, 1), said, 0.02, 0.1)

    answer = TimedAnswer("", (first, later, later), Totals(prompt_tokens=50), 0.1, (), 0.1, 0.1)
    record_draft_costs(costs, "draft", answer)

    curve = costs.draft_curve("draft", 50)
    assert curve is not None and curve.seconds_at(2) == pytest.approx(0.02)
    assert "draft" in json.loads((tmp_path / "costs.json").read_text())["drafts"]


@lru_cache
def answers() -> dict[str, list[Trace]]:
    """Recorded answers by kind."""
    groups: dict[str, list[Trace]] = {}
    for trace in read_traces(TRACES):
        groups.setdefault(trace.kind, []).append(trace)
    return groups


@pytest.mark.parametrize("order", list(permutations(("suffix", "eagle3", "plain"))))
@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_whatever_was_tuned_costs_next_to_nothing(order, slower):
    """Law 3, for the chooser as a tuned profile begins, where a draft never pays: with the right order and the wrong
    ones, and with a draft that has become `slower` than when it was measured."""
    table = cpu_like_costs("steep-dear-draft", 0.1, draft=1.1, lookup=0.01)
    for traces in answers().values():
        player, steps = Replayer(table, max(BUDGETS)), list[ReplayedStep]()
        once, each = table.draft_costs["eagle3"]
        measured_then = Curve({1: (once + each) / slower, 4: (once + 4 * each) / slower}, slope=1)
        player.chooser.costs.draft_curves["eagle3"] = {bucket_of(1): measured_then}
        for trace in cycle(traces):
            player.chooser.start_answer(trace.kind, order)
            steps += player.replay(trace)
            if len(steps) >= 500:
                break
        assert seconds_per_token(steps) <= 1.03 * table.pass_seconds_by_rows[1]


def test_an_order_says_whom_auto_tries_first_and_whom_seldom():
    text = 'name = "mine"\n[[drafter_orders]]\nkind = "chat"\nvariants = ["mtp", "plain", "suffix"]\n'
    profile = merge_sources(Profile(), [parse_toml(Path("mine.toml"), text.encode()).source("profile")]).value
    at_hand = frozenset({"plain", "suffix", "draft", "mtp", "auto"})

    route = choose_route(Request("Why is the sky blue?"), profile, at_hand)

    assert ("mtp", "plain", "suffix", "draft") == route.drafter_order
    assert ("mtp", "draft", "suffix", "plain") == choose_route(Request("Why?"), Profile(), at_hand).drafter_order
    assert "mtp is tried first" in route.reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[drafter_orders]]\nvariants = ['mtp']\n", "needs a kind"),
        ("[[drafter_orders]]\nkind = 'chta'\n", "did you mean 'chat'"),
        ("[[drafter_orders]]\nkind = 'chat'\nvariants = ['mpt']\n", "did you mean 'mtp'"),
    ],
)
def test_a_mistaken_order_is_said_to_be_one(text, said):
    with pytest.raises(ProfileError, match=said):
        merge_sources(Profile(), [parse_toml(Path("mine.toml"), text.encode()).source("profile")])


def test_tuned_profiles_are_read_without_torch():
    assert "torch" not in modules_after("import specchat.profile, specchat.cli.tune, specchat.cli.bench")
