"""The bench of prescribed forms."""

from __future__ import annotations

from specchat.assemble import load_engine
from specchat.bench import structured
from specchat.bench.structured import as_table, measure_structured
from specchat.engine.grammar import GRAMMAR_SOURCE
from specchat.profile import Profile
from tests.tiny import speaking

ENDING = {
    "type": "object",
    "properties": {"sky": {"enum": ["blue", "grey"]}},
    "required": ["sky"],
    "additionalProperties": False,
}


def test_a_form_is_kept_guessed_ahead_and_changes_nothing_else(monkeypatch):
    monkeypatch.setattr(structured, "TASKS", (("The sky?", ENDING),) * 2)
    models = {"models.target": str(speaking()), "models.draft": "", "models.heads": (), "speculation.exact": True}

    free, refused, held, _again = measure_structured(
        load_engine(Profile().override(models)), ["suffix", "eagle3"], max_tokens=30
    )

    assert (free.has_no_schema, free.valid_documents, free.forced_token_share) == (True, 0, 0.0)
    assert (held.has_no_schema, held.valid_documents, held.identical_answers) == (False, 2, 2)
    assert held.forced_token_share > 0.5  # of letters, `{"sky": "` and what follows the first letter of a colour
    assert held.tokens_per_step > 1.5
    assert refused.skip_reason
    table = as_table([free, refused, held])
    assert table.splitlines()[3].startswith("| under a schema | suffix |")
    assert table.splitlines()[-1].startswith("eagle3: ")
    assert GRAMMAR_SOURCE in held.answers[0].totals.accepted_by_drafter
