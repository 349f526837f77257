"""`python -m tools.schema_speed`: JSON answers, freely and under a schema."""

from __future__ import annotations

from collections import Counter

from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat_bench.columns import as_table, group_samples
from specchat_bench.combinations import Grid
from specchat_bench.measure import engine_measurer, run_combinations
from specchat_bench.sample_store import SampleStore
from tests.tiny import speaking
from tools import schema_speed
from tools.schema_speed import COLUMNS, counting_documents

SKY = {
    "type": "object",
    "properties": {"sky": {"enum": ["blue", "grey"]}},
    "required": ["sky"],
    "additionalProperties": False,
}


def test_a_schema_is_kept_drafted_ahead_and_changes_nothing_else(monkeypatch):
    monkeypatch.setattr(schema_speed, "SCHEMA_TASKS", (("The sky?", SKY), ("The sky again?", SKY)))
    models = {"models.target": str(speaking()), "models.draft": "", "models.heads": (), "speculation.exact": True}
    engine, grid = load_engine(Profile().override(models)), Grid(("suffix",), max_tokens=30)

    documents = Counter[str]()
    measure = counting_documents(engine_measurer(engine), documents)

    samples = run_combinations(measure, grid, schema_speed.schema_requests(), 2, SampleStore())
    rows = group_samples(samples, grid)

    by_kind = {row.combination.kind: row for row in rows if row.combination.drafter == "suffix"}
    free, constrained = by_kind["structured"], by_kind["schema"]
    assert (documents["structured documents"], free.forced_share) == (0, 0.0)
    assert documents["schema documents"] == documents["schema answers"] > 2
    assert constrained.identical_answers == 2
    assert constrained.forced_share > 0.5  # characters: `{"sky": "`, and what follows the first letter of a colour
    assert constrained.tokens_per_step > 1.5
    assert "| schema | 0 | suffix | 2 |" in as_table(rows, COLUMNS)
