"""Networks of transformers without a plugin: which formats of weights they have, and what exact mode claims."""

from __future__ import annotations

import json

import pytest

from specchat.errors import ModelError
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tools.zoo_networks import tiny_network


@pytest.fixture
def saved(tmp_path):
    def save(family, **changes):
        tiny_network(family, **changes).save_pretrained(tmp_path)
        return tmp_path

    return save


def load(folder, quant_format):
    return load_model(folder, LoadOptions(dtype="float32", device="cpu", quant_format=quant_format))


def test_weights_in_another_format_are_refused_with_the_line_that_installs_the_plugin(saved):
    folder = saved("gpt_neox", num_hidden_layers=1)

    for quant_format in ("int8", "nf4"):
        with pytest.raises(ModelError) as refused:
            load(folder, quant_format)
        assert f"its weights in {quant_format} need a plugin" in str(refused.value)
        assert "'pip install ./plugins/specchat-hybrids'; or --weights float" in str(refused.value)


def test_a_checkpoint_that_is_quantized_already_keeps_its_format(saved):
    path = saved("gpt_neox") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": {"quant_method": "awq"}}))

    with pytest.raises(ModelError, match="quantized already; use --weights float"):
        load(path.parent, "int8")


@pytest.mark.parametrize(("family", "is_exact"), [("gpt_neox", True), ("flex_olmo", False)])
def test_exact_mode_claims_nothing_where_rows_share_experts(saved, family, is_exact):
    folder = saved(family, num_hidden_layers=1)

    assert load_model(folder, LoadOptions(dtype="float32", device="cpu", exact=True)).is_exact == is_exact
