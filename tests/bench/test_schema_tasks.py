"""The bench of JSON answers: freely, and under a schema."""

from __future__ import annotations

from specchat.bench import schema_tasks
from specchat.bench.columns import SCHEMA_COLUMNS, as_table, group_samples
from specchat.bench.combinations import Grid
from specchat.bench.measure import engine_measurer, run_combinations
from specchat.bench.sample_store import SampleStore
from specchat.loading.load_engine import load_engine
from specchat.profile import Profile
from tests.tiny import speaking

SKY = {
    "type": "object",
    "properties": {"sky": {"enum": ["blue", "grey"]}},
    "required": ["sky"],
    "additionalProperties": False,
}


def test_a_schema_is_kept_drafted_ahead_and_changes_nothing_else(monkeypatch):
    monkeypatch.setattr(schema_tasks, "SCHEMA_TASKS", (("The sky?", SKY), ("The sky again?", SKY)))
    models = {"models.target": str(speaking()), "models.draft": "", "models.heads": (), "speculation.exact": True}
    engine, grid = load_engine(Profile().override(models)), Grid(("suffix",), max_tokens=30)

    samples = run_combinations(engine_measurer(engine), grid, schema_tasks.schema_requests(), 2, SampleStore())
    rows = group_samples(samples, grid)

    by_kind = {row.combination.kind: row for row in rows if row.combination.drafter == "suffix"}
    free, constrained = by_kind["structured"], by_kind["schema"]
    assert (free.valid_documents, free.forced_share) == (0, 0.0)
    assert (constrained.valid_documents, constrained.identical_answers) == (2, 2)
    assert constrained.forced_share > 0.5  # characters: `{"sky": "`, and what follows the first letter of a colour
    assert constrained.tokens_per_step > 1.5
    assert "| schema | 0 | suffix | 2 |" in as_table(rows, SCHEMA_COLUMNS)
