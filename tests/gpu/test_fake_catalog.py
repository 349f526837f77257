"""Every path that `models recommend` names for a GPU, at tiny size on the fake one: it is computed as it is priced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.devices import CUDA
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.hub.catalog import GPU_SIZES_GB, find_entry
from specchat.hub.machine import simulated_gpu
from specchat.hub.memory_plan import has_kv_arena, has_own_passes
from specchat.hub.recommend import ModelPair, recommend
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from tests.each_row import each_row
from tests.fake_gpu import FakeGpu, fake_gpu
from tests.tiny import HYBRIDS, SHAPES, VARIATIONS, Chaos, answer, saved
from tests.tiny_heads import drafter_of
from tests.triton_interpreter import IS_INTERPRETED, interpreted_kernels

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="a real GPU is here, on which all of tests/gpu runs")
FORMATS = {"bf16": "float"}
Path = tuple[str, str, str]  # a tiny network of the family, the format of `--weights`, the kind of the drafter


def tiny_name(pair: ModelPair) -> str:
    """The network of `tests.tiny` that is of its family; "" for families that transformers computes."""
    family = str(pair.entry.config["model_type"]).removesuffix("_text")
    return family if family in SHAPES | VARIATIONS and has_own_passes(pair.entry.architecture, CUDA) else ""


def recommended_paths() -> dict[Path, ModelPair]:
    pairs = [pair for size in GPU_SIZES_GB for pair in recommend(simulated_gpu(size))]
    return {
        (tiny_name(pair), FORMATS.get(pair.quant_format, pair.quant_format), pair.drafter.kind): pair for pair in pairs
    }


PATHS = recommended_paths()
OWN_PATHS = [path for path in PATHS if path[0]]


@pytest.fixture(autouse=True)
def gpu() -> None:
    """None for tests of the catalog alone, against the folder's."""


@pytest.fixture
def simulated() -> Iterator[FakeGpu]:
    with fake_gpu(has_triton=True) as fake, interpreted_kernels():
        yield fake


@each_row("size", GPU_SIZES_GB)
def test_the_first_choice_for_a_gpu_has_graphs_and_is_tested_here(size):
    first = recommend(simulated_gpu(size))[0]

    assert first.has_graphs
    assert tiny_name(first)


def test_what_transformers_computes_of_a_family_of_ours_is_not_priced_as_a_graph():
    dense, experts = (find_entry(f"gemma-4-{size}-it").architecture for size in ("E4B", "26B-A4B"))

    assert [True, False] == [has_kv_arena(each, kind=CUDA) for each in (dense, experts)]


def test_hybrids_and_mixtures_of_experts_are_among_the_paths():
    assert {"qwen3_5", "qwen3_5_moe"} <= {name for name, _format, _drafter in OWN_PATHS}


@pytest.mark.full
@pytest.mark.parametrize("path", OWN_PATHS, ids="-".join)
def test_a_recommended_path_has_graphs_where_it_is_priced_so_and_drafts_change_nothing(path, simulated):
    name, quant_format, kind = path
    model = load_model(saved(name), LoadOptions("float32", "cuda", 512, quant_format=quant_format))

    assert PATHS[path].has_graphs == model.has_graphs, "the catalog prices a pass that the engine does not make"
    assert model.supports_trees
    has_tiny_head = kind in ("mtp", "eagle3") and name != "gpt_oss"  # whose tiny network has another width
    drafters = [Chaos(3), *([drafter_of(kind, model)] if has_tiny_head else [])]
    plain = answer(model, Drafter(), [5, 6, 7], Sampler(), limit=4)
    for drafter in drafters:
        assert plain == answer(model, drafter, [5, 6, 7], Sampler(), limit=4)
    assert simulated.replays or not model.has_graphs
    assert name not in HYBRIDS or type(model).__name__ == "DeviceHybridModel"
