"""Our networks say what the publishers' own code says, to the last bits of float32, and misread they would not."""

from dataclasses import replace

import pytest
import torch

from specchat.errors import ModelError
from specchat.forward.batch import RowBatch
from specchat.heads.networks import load_head
from specchat.heads.spec import SOFTMAX
from tests.heads.published import CPU, NAMES, inspected, logits_of, published

CLOSE, FAR = 2e-5, 1e-2


def apart(spec, golden):
    """The largest difference of a logit, over both runs."""
    first, second = logits_of(spec, golden)
    wanted = golden.given["second"]
    rows = second[len(second) - len(wanted) :]
    return max(difference(first, golden.given["first"]), difference(rows, wanted))


def difference(ours, theirs):
    return float(((ours - theirs).abs() / (1 + theirs.abs())).max()) if theirs.numel() else 0.0


def wired(**changes):
    return lambda spec: replace(spec, wiring=replace(spec.wiring, **changes))


def turning(theta):
    return lambda spec: replace(spec, rope=replace(spec.rope, theta=theta))


def without(*names):
    """Without these tensors, as if nobody knew what they are for."""
    return lambda spec: renamed(spec, {name: name for name in spec.tensors.places if name not in names})


def swapped(one, other):
    """Two tensors of one shape in each other's place."""

    def swap(spec):
        names = {name: name for name in spec.tensors.places} | {one: other, other: one}
        return renamed(spec, names)

    return swap


def renamed(spec, names):
    return replace(spec, tensors=spec.tensors.renamed(names))


def unscaled(spec):
    return replace(spec, rope=replace(spec.rope, kind="default"))


def slotted(**changes):
    return lambda spec: replace(spec, slots=replace(spec.slots, **changes))


def routed(**changes):
    return lambda spec: replace(spec, routing=replace(spec.routing, **changes))


def seen_as(**changes):
    return lambda spec: replace(spec, block=replace(spec.block, latent=replace(spec.block.latent, **changes)))


def unsharpened(spec):
    """Its cosines and sines stay what they are; only the scores are not sharpened besides."""
    only = {key: value for key, value in spec.rope.scaling.items() if not key.startswith("mscale")}
    return replace(spec, rope=replace(spec.rope, scaling=only | {"attention_factor": spec.rope.size}))


def unwindowed(spec):
    return replace(spec, block=replace(spec.block, windows=()))


BLOCKS = [f"blocks.{column}.1.weight" for column in range(3)]
EMBEDDING, FEATURE = "embedding_norm.weight", "feature_norm.weight"
MISREADINGS = {
    "a bias is left out": ("eagle1-bias", without("join.bias")),
    "the base of EAGLE-1 is forgotten": ("eagle1", turning(10000.0)),
    "the norm of the layer is taken for that of the feature": (
        "speculators-eagle-norms", swapped("layers.0.input_layernorm.weight", EMBEDDING)
    ),
    "the base of the target is taken": ("eagle3", turning(500000.0)),
    "the base of the config is dropped": ("eagle3-theta", turning(10000.0)),
    "the base of AngelSlim's config is believed": ("angelslim", turning(1000000.0)),
    "the two norms of a pair are swapped": ("eagle3", swapped(EMBEDDING, FEATURE)),
    "the order of a pair is turned": ("eagle3", wired(feature_first=True)),
    "what is fed back is normed": ("eagle3", wired(feeds_normed=True)),
    "norms of the taps are left out": ("specforge-norms", without(*(f"fc_norm.{tap}.weight" for tap in range(3)))),
    "norms of the taps are swapped": ("specforge-norms", swapped("fc_norm.0.weight", "fc_norm.2.weight")),
    "the scaling of the rope is dropped": ("specforge-llama3", unscaled),
    "the residual is not normed": ("speculators-plain", wired(residual_is_normed=False)),
    "its own embeddings are left out": ("speculators-plain", without("embed_tokens.weight")),
    "the norm of all taps is left out": ("speculators-gpt", without("input_norm.weight")),
    "norm_output is taken in SpecForge's meaning": ("speculators-31", wired(feeds_normed=False)),
    "norms of queries are left out": ("speculators-31", without("layers.0.self_attn.q_norm.weight")),
    "the second layer sees everything": ("speculators-window", unwindowed),
    "MiMo's pairs are taken for DeepSeek's": ("mtp-mimo", wired(feature_first=False)),
    "speculators' pairs are taken for MiMo's": ("mtp-qwen3", wired(feature_first=True)),
    "norms are stored less one": ("mtp-qwen3_next", wired(norms_add_one=False)),
    "all of a head is turned": ("mtp-qwen3_5_text", lambda spec: replace(spec, rope=replace(spec.rope, share=1.0))),
    "what DeepSeek feeds back is not normed": ("mtp-deepseek", wired(feeds_normed=False)),
    "the columns of Medusa are swapped": ("medusa1", swapped("blocks.0.0.weight", "blocks.1.0.weight")),
    "Medusa's second block is left out": ("medusa1-deep", without(*BLOCKS)),
    "another token is the mask": ("dflash", slotted(mask=1)),
    "the norm behind fc is left out": ("dflash", without("feature_norm.weight")),
    "a layer with a window sees everything": ("dflash-window", unwindowed),
    "a layer with a window sees the slots behind": ("dflash-window", slotted(windows_look_ahead=True)),
    "speculators' windows move with the slot": ("speculators-dflash-window", slotted(windows_from_start=False)),
    "speculators' windows do not look ahead": ("speculators-dflash-ahead", slotted(windows_look_ahead=False)),
    "the groups of experts are forgotten": ("mtp-glm4_moe", routed(groups=1, open_groups=1)),
    "the scale of experts is forgotten": ("mtp-glm4_moe", routed(scale=1.0)),
    "experts that were chosen by sigmoids are chosen by a softmax": ("mtp-glm4_moe", routed(rule=SOFTMAX)),
    "the correction of experts is left out": (
        "mtp-glm4_moe", without("layers.0.mlp.gate.e_score_correction_bias")
    ),
    "the weights of experts do not add up": ("mtp-qwen3_next-experts", routed(is_normed=False)),
    "neighbours that turn together are taken for halves": ("mtp-deepseek_v3", seen_as(interleaved=False)),
    "halves that turn together are taken for neighbours": ("mtp-deepseek_v3-plain", seen_as(interleaved=True)),
    "scores are not sharpened": ("mtp-deepseek_v3", unsharpened),
    "DeepSeek's stretched rope is not stretched": ("mtp-deepseek_v3", unscaled),
    "DeepSeek's base is forgotten": ("mtp-glm4_moe_lite", turning(2.0)),
    "latents are not normed": ("mtp-deepseek_v3", without("layers.0.self_attn.kv_a_layernorm.weight")),
    "what queries are made of is not normed": ("mtp-deepseek_v3", without("layers.0.self_attn.q_a_layernorm.weight")),
    "a bias of latents is left out": (
        "mtp-deepseek_v3-plain", without("layers.0.self_attn.kv_a_proj_with_mqa.bias")
    ),
    "the halves of eh_proj are swapped": ("mtp-deepseek_v3", wired(feature_first=True)),
    "what DeepSeek-V3 feeds back is not normed": ("mtp-deepseek_v3", wired(feeds_normed=False)),
    "DeepSeek-V3's own embeddings are left out": ("mtp-deepseek_v3", without("embed_tokens.weight")),
    "DeepSeek-V3's own output is left out": ("mtp-deepseek_v3", without("lm_head.weight")),
    "what all rows ask is always heard": (
        "mtp-qwen3_next-experts", without("layers.0.mlp.shared_expert_gate.weight")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_publisher(name, tmp_path):
    golden = published(name)

    assert apart(inspected(golden, tmp_path), golden) < CLOSE, golden.oracle


@pytest.mark.parametrize("misreading", MISREADINGS)
def test_a_misreading_says_something_else(misreading, tmp_path):
    name, misread = MISREADINGS[misreading]
    golden = published(name)

    assert apart(misread(inspected(golden, tmp_path)), golden) > FAR


def test_every_golden_file_names_its_oracle():
    assert all(published(name).oracle for name in NAMES)
    assert {published(name).oracle.split()[0] for name in NAMES} == {
        "eagle-llm", "SafeAILab/EAGLE", "deepseek-ai/DeepSpec", "angelslim", "specforge", "speculators", "transformers",
        "medusa-llm",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["eagle3", "mtp-deepseek_v3"])
def test_branches_do_not_see_each_other(name, tmp_path):
    golden = published(name)
    head = load_head(inspected(golden, tmp_path), golden.lender, None, CPU)
    hidden, embedded = head.fuse(golden.given["features"]), head.embed(golden.given["tokens"])
    cache = head.pool.open()

    def said(rows, sees):
        nodes = RowBatch([0] * len(rows), torch.tensor([0, 1, 1])[rows], torch.tensor(sees, dtype=torch.bool), 0)
        return head.forward(hidden[rows], embedded[rows], nodes, cache).logits

    with head.pool.acquire_slot(cache, 8):
        both = said([0, 1, 2], [[1, 0, 0], [1, 1, 0], [1, 0, 1]])
        one, other = said([0, 1], [[1, 0], [1, 1]]), said([0, 2], [[1, 0], [1, 1]])

    assert torch.allclose(both[:2], one, atol=1e-5)
    assert torch.allclose(both[2], other[1], atol=1e-5)
    assert cache.length == 0


@pytest.mark.parametrize("name", ["mtp-deepseek", "eagle3"], ids=["the target's matrix", "its own"])
def test_only_the_rows_that_are_asked_for_are_scored(name, tmp_path):
    golden = published(name)
    head = load_head(inspected(golden, tmp_path), golden.lender, None, CPU)
    hidden, embedded = head.fuse(golden.given["features"]), head.embed(golden.given["tokens"])
    nodes, cache = RowBatch([0] * 6, torch.arange(6), torch.ones(6, 6, dtype=torch.bool).tril(), 0), head.pool.open()
    scored, score = list[int](), head._lm_head
    head._lm_head = lambda rows: scored.append(len(rows)) or score(rows)

    with head.pool.acquire_slot(cache, 8):
        everything = head.forward(hidden, embedded, nodes, cache)
        last = head.forward(hidden, embedded, nodes, cache, scored=2)
        nothing = head.forward(hidden, embedded, nodes, cache, scored=0)

    assert scored == [6, 2, 0]
    assert torch.allclose(last.logits, everything.logits[-2:], atol=1e-5)
    assert torch.allclose(last.hidden_states, everything.hidden_states[-2:], atol=1e-5)
    assert len(nothing.logits) == len(nothing.hidden_states) == 0


def test_blocks_do_not_see_each_other(tmp_path):
    golden = published("dflash")
    head = load_head(inspected(golden, tmp_path), golden.lender, None, CPU)
    tokens, cache = golden.given["tokens"].tolist(), head.pool.open()

    with head.pool.acquire_slot(cache, 32):
        head.prefill(golden.given["features"], 0, cache)
        both = head.draft_block([tokens[2], tokens[5]], [3, 6], cache)
        first, second = head.draft_block([tokens[2]], [3], cache), head.draft_block([tokens[5]], [6], cache, ahead=2)

    assert torch.allclose(both, torch.stack((golden.given["first"], golden.given["second"])), atol=1e-4)
    assert torch.allclose(both[:1], first, atol=1e-5)
    assert torch.allclose(both[1:, :2], second, atol=1e-5)
    assert cache.length == 6


def test_a_block_looks_back_no_further_than_it_was_trained(tmp_path):
    golden = published("dflash")
    head = load_head(replace(inspected(golden, tmp_path), window=2), golden.lender, None, CPU)
    token, cache, other = int(golden.given["tokens"][-1]), head.pool.open(), head.pool.open()

    with head.pool.acquire_slot(cache, 32), head.pool.acquire_slot(other, 32):
        head.prefill(golden.given["features"], 0, cache)
        head.prefill(golden.given["features"][-1:], 5, other)
        assert torch.allclose(
            head.draft_block([token], [6], cache), head.draft_block([token], [6], other, first=5), atol=1e-5
        )


@pytest.mark.parametrize("name", ["eagle3", "mtp-deepseek_v3-plain"])
def test_places_beyond_its_training_are_only_further_turns(name, tmp_path):
    golden = published(name)
    head = load_head(inspected(golden, tmp_path), golden.lender, None, CPU)
    hidden, embedded = head.fuse(golden.given["features"]), head.embed(golden.given["tokens"])
    cache = head.pool.open()

    def said(start):
        places = torch.arange(6) + start
        return head.forward(
            hidden, embedded, RowBatch([0] * 6, places, torch.ones(6, 6, dtype=torch.bool).tril(), 0), cache
        )

    with head.pool.acquire_slot(cache, 8):
        assert torch.allclose(said(0).logits, said(50_000).logits, atol=0.05)


def test_a_head_runs_in_the_dtype_of_its_target(tmp_path):
    golden = published("eagle3")
    lender = golden.lender
    lender.pool.layout = replace(lender.pool.layout, dtype=torch.bfloat16)
    head = load_head(inspected(golden, tmp_path), lender, None, CPU)

    fused = head.fuse(golden.given["features"].bfloat16())

    assert fused.dtype == torch.bfloat16
    assert head.pool.layout.dtype == torch.bfloat16


def test_of_latents_little_is_kept(tmp_path):
    golden = published("mtp-deepseek_v3")

    head = load_head(inspected(golden, tmp_path), golden.lender, None, CPU)

    assert head.pool.layout.shapes == ((1, 12 + 4, 0),)  # a latent and a turned key, not 3 keys of 10 and values of 5
    assert head.pool.layout.bytes_per_row == 4 * 16


def test_bytes_are_those_of_its_own_weights(tmp_path):
    golden = published("medusa2")

    head = load_head(inspected(golden, tmp_path), golden.lender, torch.float32, CPU)

    assert head.bytes == sum(weight.numel() * 4 for weight in golden.head.values())
    assert head.tokens_ahead == 3


def test_numbers_that_are_none_are_refused_by_name(tmp_path):
    golden = published("eagle3")
    broken = golden.head["midlayer.mlp.up_proj.weight"].clone()
    broken[0, 0] = float("nan")

    spec = inspected(golden, tmp_path, head={"midlayer.mlp.up_proj.weight": broken})

    with pytest.raises(ModelError, match=r"layers\.0\.mlp\.up_proj\.weight holds numbers that are none"):
        load_head(spec, golden.lender, None, CPU)


def test_what_cannot_be_computed_yet_says_why(tmp_path):
    golden = published("mtp-deepseek")
    spec = replace(inspected(golden, tmp_path), unsupported="its layer is a mixture of experts")

    with pytest.raises(ModelError, match="not supported yet: its layer is a mixture of experts"):
        load_head(spec, golden.lender, None, CPU)


def test_a_wrong_pairing_is_refused_before_anything_is_read(tmp_path):
    narrow, wide = published("eagle3"), published("eagle3-narrow")
    spec = inspected(narrow, tmp_path)
    (tmp_path / narrow.file).unlink()

    with pytest.raises(ModelError, match="states of width 16, and the target's are 20 wide"):
        load_head(spec, wide.lender, None, CPU)
