"""The heads that GGUF files have are those of the published checkpoints."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.registry import build_drafter
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.errors import ModelError
from specchat.forward.batch import BatchLimits
from specchat.hub.safetensors_headers import read_architecture
from specchat.loading import load_engine as loading
from specchat.loading.load_plan import ComputeFeatures, plan_load
from specchat.profile.keys import Profile
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_weights import load_llama
from tests.drafters.published import Published, two_runs
from tests.gguf_models import network, stored_tensors, write_gguf
from tests.tiny import answer

CPU = torch.device("cpu")
FAMILIES = ["qwen35", *(pytest.param(each, marks=pytest.mark.full) for each in ("qwen35moe", "qwen3next"))]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def published_layer(model):
    """A layer that drafts, by the names of Qwen: the last layer of the network, and what pairs need."""
    torch.manual_seed(5)
    size, last = model.config.hidden_size, f"model.layers.{model.config.num_hidden_layers - 1}."
    layer = {name: each for name, each in model.state_dict().items() if name.startswith(last)}
    tensors = {f"mtp.layers.0.{name.removeprefix(last)}": each for name, each in layer.items()}
    tensors["mtp.fc.weight"] = torch.randn(size, 2 * size) / size**0.5
    tensors |= {
        f"mtp.{name}.weight": 0.1 * torch.randn(size)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    }
    return {name: each.bfloat16().float().contiguous() for name, each in tensors.items()}


def write_drafting(path, family, model, published, **options):
    """The file that llama.cpp's converter writes of a checkpoint with a layer that drafts."""
    layers, prefix = model.config.num_hidden_layers, f"{family}."
    last, drafting = f"blk.{layers - 1}.", f"blk.{layers}."
    stored = stored_tensors(family, model)
    tensors = {name.replace(last, drafting): each for name, each in stored.items() if name.startswith(last)}
    names = {
        "eh_proj": "fc",
        "enorm": "pre_fc_norm_embedding",
        "hnorm": "pre_fc_norm_hidden",
        "shared_head_norm": "norm",
    }
    for part, name in names.items():
        values = published[f"mtp.{name}.weight"]
        tensors[f"{drafting}nextn.{part}.weight"] = (values + (1 if values.ndim == 1 else 0)).numpy()
    metadata = {f"{prefix}block_count": layers + 1, f"{prefix}nextn_predict_layers": 1}
    return write_gguf(path, family, model=model, tensors=tensors, metadata=metadata, **options)


def profile_of(path, **settings) -> Profile:
    return Profile().override({"models.target": str(path), "models.draft": "", "models.device": "cpu", **settings})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_layer_that_drafts_is_the_published_one(tmp_path, family):
    model = network(family)
    published = published_layer(model)
    folder = prepared_gguf(write_drafting(tmp_path / "model.gguf", family, model, published))
    (tmp_path / "head").mkdir()
    save_file(published, tmp_path / "head/model.safetensors")
    (tmp_path / "head/config.json").write_text((folder / "config.json").read_text())

    target = load_llama(folder, torch.float32, CPU, None, BatchLimits(prefill_chunk=16))
    heads = [load_head(inspect_head(each), target, torch.float32, CPU) for each in (folder, tmp_path / "head")]

    assert "mtp" == inspect_head(folder).kind
    given = {"tokens": torch.arange(5, 12), "features": torch.randn(7, model.config.hidden_size)}
    inputs = Published("mtp", published, {}, "", given, "", second_is_alone=False)
    for stored, expected in zip(*(two_runs(head, inputs) for head in heads), strict=True):
        assert torch.equal(stored.logits, expected.logits)


def test_the_layer_in_the_file_of_the_target_drafts_by_itself(tmp_path):
    model = network("qwen35")
    path = write_drafting(tmp_path / "model.gguf", "qwen35", model, published_layer(model), storage="Q8_0")
    plain = write_gguf(tmp_path / "plain.gguf", "qwen35", model=model, storage="Q8_0")

    engine = loading.load_engine(profile_of(path))
    plan = plan_load(profile_of(path), ComputeFeatures("cpu", has_cpu_bf16=False))

    assert ["mtp"] == list(engine.resources.heads)
    assert "a layer in the target's file, for multi-token prediction" in [*plan.lines()][-1].text
    assert 0 < plan.heads[0].stored_bytes < path.stat().st_size - plain.stat().st_size
    assert read_architecture(path).parameters == read_architecture(plain).parameters
    assert not plan_load(profile_of(path, **{"models.heads": []}), ComputeFeatures("cpu", has_cpu_bf16=False)).heads
    drafter = build_drafter("mtp", engine.resources)
    assert drafter is not None
    drafted, alone = (
        answer(engine.resources.target, each, [5, 6, 7], Sampler(temperature=0.0)) for each in (drafter, Drafter())
    )
    assert drafted == alone


def test_a_layer_that_cannot_draft_is_left_out_with_one_line_and_an_error_where_it_was_named(tmp_path, monkeypatch):
    model = network("qwen35")
    path = write_drafting(tmp_path / "model.gguf", "qwen35", model, published_layer(model))

    def refuse(spec, *_others, **_options):
        raise ModelError(f"{spec.source}: not supported yet: its attention")

    monkeypatch.setattr(loading, "load_selected_head", refuse)

    engine = loading.load_engine(profile_of(path))
    assert not engine.resources.heads
    assert [f"{path}: not supported yet: its attention"] == [
        each for each in engine.models.notices if "attention" in each
    ]
    with pytest.raises(ModelError, match="its attention"):
        loading.load_engine(profile_of(path, **{"models.heads": [str(path)]}))


def test_a_file_without_such_a_layer_is_no_head(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", "qwen35")

    assert "mtp_num_hidden_layers" not in json.loads((prepared_gguf(path) / "config.json").read_text())
    with pytest.raises(ModelError, match="it looks like a complete language model"):
        inspect_head(prepared_gguf(path))
