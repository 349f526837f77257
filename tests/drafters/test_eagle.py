"""A head that goes on where the target's hidden states end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from specchat.drafters.eagle import eagle_drafter
from specchat.drafters.eagle import head as pair_head
from specchat.drafters.eagle.dynamic_tree import CHAIN_CONFIG, TreeConfig
from specchat.drafters.eagle.eagle_drafter import EagleDrafter, TorchTrees
from specchat.drafters.eagle.head import HeadOutput
from specchat.drafters.eagle.native_tree import NativeTrees
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.hidden_states import HiddenStateBuffer
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.forward.llama.embedding_rows import EmbeddingRows
from specchat.forward.native.native_ops import NativeBorderError, native_kernels
from tests.tiny import VOCABULARY, target, write
from tests.tiny_heads import drafted, drafter_of, prefilled, read, writing_of

TEXT = [7, 3, 9, 12, 40, 41, 42, 60, 61] * 3
KINDS = ["eagle3", "mtp"]
EAGER = TreeConfig(depth=4, width=3, max_draft_tokens=12, min_level_probability=0.0)
TRUNCATED = {"top-p": Sampler(0.7, top_p=0.8, seed=2), "top-k": Sampler(1.0, top_k=5, min_p=0.05, seed=3)}
SAMPLERS = {"greedy": Sampler(), "T1": Sampler(1.0, seed=4), "penalty": Sampler(0.8, repetition_penalty=1.3, seed=5)}


def made(kind: str = "eagle3", growth: TreeConfig = EAGER, text: list[int] = TEXT) -> tuple[Generation, EagleDrafter]:
    return prefilled(EagleDrafter, kind, text, growth)


def same(one: DraftTree, other: DraftTree) -> bool:
    return (one.tokens, one.parents) == (other.tokens, other.parents)


@pytest.mark.dear
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_after_turns_and_truncations_it_drafts_like_a_new_one(kind, sampler):
    writing, drafter = made(kind)
    for cut in (30, 2):
        write(writing, GenerationConfig(drafter, SAMPLERS[sampler], max_draft_tokens=8, max_new_tokens=14))
        _, fresh = made(kind, text=writing.tokens)
        assert same(drafted(writing, drafter, SAMPLERS[sampler]), drafted(writing, fresh, SAMPLERS[sampler]))
        read(writing, [*writing.tokens[:cut], 5, 6, 8])
        _, fresh = made(kind, text=writing.tokens)
        assert same(drafted(writing, drafter, SAMPLERS[sampler]), drafted(writing, fresh, SAMPLERS[sampler]))


@pytest.mark.parametrize("growth", [CHAIN_CONFIG, EAGER], ids=["chain", "tree"])
@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_its_cache_holds_committed_pairs_only_after_every_step(kind, growth):
    writing, drafter = made(kind, growth)
    plan, drafted = (
        GenerationConfig(
            drafter, Sampler(1.0, seed=3), max_draft_tokens=8, max_new_tokens=24, stop_token_ids=frozenset({3})
        ),
        0,
    )

    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(24)):
        for step in writing.decode(plan):
            assert drafter.hidden_states.end == writing.cache.length == len(writing.tokens) - 1
            if step.drafted:
                assert drafter.cache.length == len(writing.tokens) - 1 - len(step.committed_tokens)
                drafted += 1
    assert drafted > 2


@pytest.mark.parametrize("cut", [0, 1, 2, 13, len(TEXT)])
def test_a_pair_is_dropped_with_its_second_token(cut):
    writing, drafter = made()
    drafted(writing, drafter)

    drafter.forget(cut)

    assert drafter.hidden_states.end == min(cut, len(TEXT) - 1)
    assert drafter.cache.length == max(cut - 1, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_longer_than_its_window_is_cut_far_back(kind):
    writing, drafter = made(kind, text=[token % 90 for token in range(3, 153)])
    drafted(writing, drafter)
    assert drafter.cache.length == drafter.head.context_window == 64

    read(writing, [*writing.tokens[:20], 5, 6, 8])

    _, fresh = made(kind, text=writing.tokens)
    assert same(drafted(writing, drafter), drafted(writing, fresh))
    assert drafter.cache.length == len(writing.tokens) - 1


@pytest.fixture
def by_operations(monkeypatch):
    """Trees grow by operations of torch, as where a head has other parts than native kernels."""
    use_operations(monkeypatch)


def use_operations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(eagle_drafter, "NativeTrees", lambda head, _network, config: TorchTrees(head, config))


def test_cached_tokens_are_not_computed_again(by_operations):
    writing, drafter = made()
    rows, run = list[int](), drafter.head.forward
    drafter.head.forward = lambda hidden, *rest: rows.append(len(hidden)) or run(hidden, *rest)  # type: ignore[method-assign]
    drafted(writing, drafter)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=0, max_new_tokens=3))

    drafted(writing, drafter)

    assert rows[0] == len(TEXT) - 1
    assert max(rows[1:]) == 3


def test_only_the_last_pair_of_a_prompt_has_logits(by_operations):
    writing, drafter = made(text=TEXT * 10)
    said, run = list[HeadOutput](), drafter.head.forward
    drafter.head.forward = lambda *asked: said.append(run(*asked)) or said[-1]  # type: ignore[method-assign]
    drafter.head.context_window = 1000

    drafted(writing, drafter)

    scored = [len(each.logits) for each in said]
    assert scored[:3] == [0, 0, 1]
    assert all(rows > 0 for rows in scored[3:])


def test_a_level_is_one_pass(by_operations):
    writing, drafter = made()
    rows, run = list[int](), drafter.head.forward
    drafter.head.forward = lambda hidden, *rest: rows.append(len(hidden)) or run(hidden, *rest)  # type: ignore[method-assign]

    drafted(writing, drafter)

    assert 2 <= len(rows) <= EAGER.depth
    assert all(count <= EAGER.width for count in rows[1:])


@pytest.mark.dear
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("sampler", [*TRUNCATED, *SAMPLERS])
@pytest.mark.parametrize("growth", [EAGER, TreeConfig(), CHAIN_CONFIG], ids=["eager", "default", "chain"])
@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_one_call_of_a_kernel_drafts_the_tree_of_the_operations(monkeypatch, kind, growth, sampler):
    rules, drawn = (SAMPLERS | TRUNCATED)[sampler], list[list[DraftTree]]()
    for is_native in (True, False):
        if not is_native:
            use_operations(monkeypatch)
        writing, drafter = made(kind, growth, [token % 90 for token in range(3, 93)])  # longer than the head's window
        trees = [drafted(writing, drafter, rules, budget) for budget in (12, 3, 1)]
        write(writing, GenerationConfig(drafter, rules, max_draft_tokens=6, max_new_tokens=9))
        read(writing, [*writing.tokens[:80], 5, 6, 8])
        drawn.append([*trees, drafted(writing, drafter, rules)])
        assert drafter.cache.length == len(writing.tokens) - 1 - drafter._first_position

    assert len(drawn[0][0]) > 1
    assert all(same(one, other) for one, other in zip(*drawn, strict=True))


@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_the_kernel_finds_the_children_of_the_algorithm_and_their_probabilities(kind, sampler):
    found = []
    for make in (lambda drafter: drafter.kernel, lambda drafter: TorchTrees(drafter.head, EAGER)):
        writing, drafter = made(kind)
        kernel = drafter.kernel = make(drafter)
        with pytest.MonkeyPatch.context() as patch:
            draft = kernel.draft
            patch.setattr(kernel, "draft", lambda *asked: found.append(draft(*asked)) or found[-1])  # noqa: B023
            drafted(writing, drafter, SAMPLERS[sampler])
    by_kernel, by_algorithm = found

    assert len(by_kernel) > EAGER.width
    assert [(each.token, each.parent) for each in by_kernel] == [(each.token, each.parent) for each in by_algorithm]
    bits = [np.array([each.log_probability for each in children], np.float32) for children in found]
    assert np.array_equal(*bits)


@pytest.mark.usefixtures("native_library")
def test_no_kernel_reads_beyond_the_tables_of_a_head():
    writing, drafter = made()
    network, head = drafter.head.network, drafter.head
    assert network is not None
    few = replace(network, angles=network.angles.at(torch.arange(5)))
    narrow = replace(network, embeddings=network.embeddings[:, :5].contiguous())

    drafter.kernel = NativeTrees(head, few, EAGER)
    with pytest.raises(NativeBorderError):
        drafted(writing, drafter)
    with pytest.raises(NativeBorderError):
        NativeTrees(head, narrow, EAGER)


@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("kind", ["mtp", "eagle3"])
def test_embeddings_that_are_still_in_a_file_are_copied_for_the_kernel_unless_they_are_many(monkeypatch, kind):
    writing, drafter = made(kind)
    assert drafter.head.network is not None
    table = drafter.head.network.embeddings
    in_file = target("dense-llama")
    shape = (table.shape[0], table.shape[1])
    in_file.weights = replace(in_file.weights, embedding=EmbeddingRows(shape, table.dtype, lambda rows: table[rows]))

    copying = drafter_of(kind, in_file, EAGER)
    with monkeypatch.context() as patch:
        patch.setattr(pair_head, "MOST_COPIED_VALUES", 1)
        assert (drafter_of(kind, in_file, EAGER).head.network is None) == (kind == "mtp")
    reading = writing_of(in_file, copying)
    read(reading, TEXT)

    assert copying.head.network.embeds_columns
    assert len(copying.head.network.embeddings) == (60 if kind == "eagle3" else VOCABULARY)
    assert same(drafted(reading, copying), drafted(writing, drafter))


def test_a_head_drafts_by_kernels_where_they_are():
    assert (made("eagle3")[1].head.network is not None) == (native_kernels().library is not None)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_best_branch_is_what_a_chain_would_be(kind, sampler):
    writing, tree = made(kind)
    _, chain = made(kind, TreeConfig(depth=4, width=1, max_draft_tokens=4, min_level_probability=0.0))

    grown = drafted(writing, tree, SAMPLERS[sampler]).first_chain(12).tokens
    alone = drafted(writing, chain, SAMPLERS[sampler]).tokens

    shorter = min(len(grown), len(alone))
    assert shorter > 1
    assert grown[:shorter] == alone[:shorter]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_budget_is_kept_and_every_parent_too(sampler):
    writing, drafter = made()
    for budget in range(14):
        tree = drafted(writing, drafter, SAMPLERS[sampler], budget)

        assert len(tree) <= min(budget, EAGER.max_draft_tokens) + 1
        assert all(parent < node for node, parent in enumerate(tree.parents))
        assert max(tree.depths) <= EAGER.depth


def test_only_tokens_of_its_vocabulary_are_drafted():
    writing, drafter = made("eagle3")

    tokens = drafted(writing, drafter, SAMPLERS["T1"]).tokens[1:]

    assert drafter.head.draft_to_target_ids is not None
    assert set(tokens) <= set(drafter.head.draft_to_target_ids.tolist())


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_it_attends_to_its_context_window_only(kind):
    writing, drafter = made(kind, text=TEXT * 9)
    window = drafter.head.context_window
    assert len(writing.tokens) > 2 * window
    for _ in range(4):
        write(writing, GenerationConfig(drafter, SAMPLERS["T1"], max_draft_tokens=8, max_new_tokens=24))
        _, fresh = made(kind, text=writing.tokens)
        assert same(drafted(writing, drafter, SAMPLERS["T1"]), drafted(writing, fresh, SAMPLERS["T1"]))
        assert drafter.cache.length <= 2 * window


def test_the_hidden_states_of_the_end_of_a_prompt_suffice():
    writing, drafter = made(text=[5])
    drafter.hidden_states = HiddenStateBuffer(max_tokens=20)

    read(writing, TEXT * 2)

    assert drafter.hidden_states.start > 0
    assert len(drafted(writing, drafter)) > 1
    assert drafter.cache.length == drafter.hidden_states.end - drafter.hidden_states.start


def test_without_hidden_states_it_drafts_nothing_until_they_return():
    writing, drafter = made()
    writing.target.set_hidden_state_layers(())
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=4))
    assert len(drafted(writing, drafter)) == 1

    writing.target.set_hidden_state_layers(drafter.hidden_state_layers)
    write(writing, GenerationConfig(drafter, Sampler(), max_draft_tokens=8, max_new_tokens=2))

    assert len(drafted(writing, drafter)) > 1


def test_hidden_states_of_other_layers_are_ignored():
    alone, drafter = made()
    model = target("dense-llama")
    other = drafter_of("eagle3", model, EAGER)
    model.set_hidden_state_layers((2, -1, 3, 1, 0))
    writing = Generation(model, (other,))
    read(writing, TEXT)

    assert same(drafted(writing, other), drafted(alone, drafter))  # type: ignore[arg-type]


def test_without_memory_for_its_kv_cache_it_drafts_nothing():
    writing, drafter = made()
    drafter.head.pool.budget_bytes = 10

    assert len(drafted(writing, drafter)) == 1


def test_a_limited_width_narrows_the_tree_in_every_kernel():
    writing, drafter = made()
    assert not drafted(writing, drafter).is_chain
    drafter.limit_width(1)

    for kernel in (drafter.kernel, TorchTrees(drafter.head, drafter.tree_config)):
        drafter.kernel = kernel
        assert drafted(writing, drafter).is_chain


def test_a_target_that_takes_chains_only_gets_chains():
    drafter = drafter_of("eagle3", target("llama", exact=True))

    assert isinstance(drafter, EagleDrafter)
    assert drafter.tree_config == CHAIN_CONFIG
