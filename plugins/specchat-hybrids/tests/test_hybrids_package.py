"""The package itself: what it adds to specchat, and what it takes from it."""

from pathlib import Path

import specchat_hybrids
from specchat.cli.main import run
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.decoding_probe import RECURRENT, find_form
from tests.each_row import each_row
from tests.plugins.conftest import wrong_imports
from tools.zoo_networks import tiny_network

FORM, STEPS = "chains-over-own-cache", "token-by-token"
FORMS = {
    "bloom": (FORM, "our KV cache does not suit it"),  # ALiBi
    "bamba": (FORM, RECURRENT),  # takes positions from its caller
    "jamba": (STEPS, "a later part of a prompt differs"),  # continues a state with one token only
    "recurrent_gemma": (STEPS, "a later part of a prompt differs"),  # keeps its state in modules
}


def test_it_uses_public_names_of_specchat_and_no_front_end():
    assert wrong_imports(Path(specchat_hybrids.__file__).parent) == []


def test_the_list_of_plugins_has_its_form(capsys):
    assert 0 == run(["plugins"])

    assert f"drafts by {FORM}" in capsys.readouterr().out


@each_row("family", FORMS)
def test_a_form_of_the_plugin_is_chosen_where_its_passes_are_right(family):
    form = find_form(tiny_network(family), BatchLimits())

    name, reason = FORMS[family]
    assert name == form.name
    assert reason in form.reason
