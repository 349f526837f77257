"""The bench of prescribed forms."""

from __future__ import annotations

from specchat.assemble import load_engine
from specchat.bench import structured
from specchat.bench.structured import as_table, measure
from specchat.engine.grammar import SOURCE
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

    free, refused, held, _again = measure(load_engine(Profile().override(models)), ["suffix", "eagle3"], limit=30)

    assert (free.is_free, free.documents, free.forced) == (True, 0, 0.0)
    assert (held.is_free, held.documents, held.same_text) == (False, 2, 2)
    assert held.forced > 0.5  # of letters, `{"sky": "` and what follows the first letter of a colour
    assert held.tokens_per_pass > 1.5
    assert refused.refused
    table = as_table([free, refused, held])
    assert table.splitlines()[3].startswith("| under a schema | suffix |")
    assert table.splitlines()[-1].startswith("eagle3: ")
    assert SOURCE in held.answers[0].totals.accepted
