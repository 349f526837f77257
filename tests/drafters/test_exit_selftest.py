"""The self-test of early exit: the layer with the most tokens per second, found once."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from specchat.chat.request import Request
from specchat.drafters.early_exit import EarlyExit
from specchat.drafters.exit_selftest import acceptance_by_layer, find_exit_layer
from specchat.errors import ModelError
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.load_engine import load_engine
from specchat.profile import Profile
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.engine_answers import measure_answer
from tests.tiny import SPEAKING, network, speaking

PROMPTS = ([7, 3, 9], [12, 40])


def idle_after(layers: int, of: int = 4) -> LlamaModel:
    """A target of which the later layers add nothing, as if it were trained perfectly for an exit before them."""
    plain = deepcopy(network("llama", of))
    for layer in plain.model.layers[layers:]:
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    with TemporaryDirectory() as folder:
        plain.save_pretrained(folder)
        model = load_model(Path(folder), LoadOptions(dtype="float32"))
    assert isinstance(model, LlamaModel)
    return model


def layers_cost(seconds: float):
    """A stopwatch for which each layer of an exit takes so long, and a verifying pass one second."""
    times = iter((seconds, 3 * seconds, 1.0))  # an exit after the first layer, after the last but one, and a pass
    return lambda compute: (compute(), next(times))[1]


def never(_compute):
    raise AssertionError("the self-test ran again")


def test_an_exit_before_idle_layers_is_accepted_as_often_as_the_target_itself():
    rates = acceptance_by_layer(idle_after(2), PROMPTS)

    assert rates[1] < rates[2] == pytest.approx(rates[3])
    assert 3 == len(rates)


def test_the_layer_with_the_most_tokens_per_second_is_chosen(tmp_path):
    assert 2 == find_exit_layer(idle_after(2), PROMPTS, tmp_path, layers_cost(0.01))


def test_a_layer_that_costs_too_much_is_not_worth_its_tokens(tmp_path):
    """With exits as slow as this, the first layer drafts, although it is accepted less often."""
    assert 1 == find_exit_layer(idle_after(2), PROMPTS, tmp_path, layers_cost(1000.0))


def test_the_result_is_kept_for_this_target_alone(tmp_path):
    model = idle_after(2)
    found = find_exit_layer(model, PROMPTS, tmp_path, layers_cost(0.01))

    assert found == find_exit_layer(model, PROMPTS, tmp_path, never)
    with pytest.raises(AssertionError, match="ran again"):
        find_exit_layer(idle_after(2, of=5), PROMPTS, tmp_path, never)


@pytest.mark.parametrize("content", ["", "{}", '{"layer": 4}', '{"layer": "2"}', '{"layer": 0}'])
def test_an_invalid_result_is_measured_again(tmp_path, content):
    model = idle_after(2)
    find_exit_layer(model, PROMPTS, tmp_path, layers_cost(0.01))
    [path] = (tmp_path / "early_exit").iterdir()
    path.write_text(content)

    assert 2 == find_exit_layer(model, PROMPTS, tmp_path, layers_cost(0.01))
    assert 2 == json.loads(path.read_text())["layer"]


def test_the_self_test_leaves_the_target_as_it_was(tmp_path):
    model = idle_after(2)
    model.set_hidden_state_layers((1,))
    find_exit_layer(model, PROMPTS, tmp_path)

    assert (1,) == model.hidden_state_layers


def test_a_target_of_one_layer_has_no_exit(tmp_path):
    assert 0 == find_exit_layer(idle_after(1, of=1), PROMPTS, tmp_path, never)


def profile_of(folder, early_exit: str) -> Profile:
    return Profile().override(
        {"models.target": str(folder), "models.draft": "", "models.heads": [], "models.early_exit": early_exit}
    )


@pytest.mark.parametrize("early_exit", ["1", "measure"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_target_that_exits_early_by_the_profile_writes_the_text_of_plain_decoding(
    tmp_path, monkeypatch, early_exit, temperature
):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    engine = load_engine(profile_of(speaking(3), early_exit))
    request = Request("why why why", max_tokens=24, seed=2, temperature=temperature)
    plain, drafted = (measure_answer(engine, replace(request, variant=variant)) for variant in ("plain", "exit"))

    with engine.create_session() as session:
        drafter = session.drafters["exit"]
        assert isinstance(drafter, EarlyExit)
        assert drafter.exit_layer in ((1,) if early_exit == "1" else (1, 2))
    assert plain.text == drafted.text


def test_a_checkpoint_named_layerskip_is_measured_without_a_key(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    folder = shutil.copytree(speaking(3), tmp_path / "layerskip-llama")

    assert "exit" in load_engine(profile_of(folder, "auto")).variants
    assert "exit" not in load_engine(profile_of(folder, "off")).variants
    assert "exit" not in load_engine(profile_of(speaking(3), "auto")).variants


def test_an_exit_after_too_many_layers_is_refused():
    with pytest.raises(ModelError, match=r"models\.early_exit is 3, and .* has 3 layers"):
        load_engine(profile_of(speaking(3), "3"))


def test_a_network_of_transformers_cannot_exit_early(tmp_path):
    folder = shutil.copytree(speaking(2), tmp_path / "cohere")
    network("cohere", 2, vocabulary=SPEAKING).save_pretrained(folder)

    with pytest.raises(ModelError, match="is computed by transformers"):
        load_engine(profile_of(folder, "measure"))
