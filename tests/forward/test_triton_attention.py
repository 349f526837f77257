"""Triton's tree attention is that of the formula, and a row has the same bits alone, in a chain and in a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no release for this platform")

from specchat.engine.cache_sizes import SPLIT_KEYS
from specchat.forward.batch import MASK_BITS, CacheRows
from specchat.forward.cuda.triton_attention import BLOCK_KEYS, attention
from specchat.forward.fused_ops import AttentionDimensions
from specchat.forward.llama.variations import Scaling
from tests.cover import matrix
from tests.triton_interpreter import DEVICE, interpreted_kernels

pytestmark = pytest.mark.full

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 0.004, torch.bfloat16: 0.03}
HEADS = [(4, 2), (7, 1), (3, 3), (17, 1)]
SIZES = [64, 80, 96, 128]
LENGTHS = [0, 1, BLOCK_KEYS - 1, BLOCK_KEYS, BLOCK_KEYS + 1, SPLIT_KEYS - 2, SPLIT_KEYS, 2 * SPLIT_KEYS + 5]
WINDOWS = [None, 3, BLOCK_KEYS, SPLIT_KEYS + 9]
SOFT_CAPS = [None, 5.0]
TREE = [-1, 0, 0, 1, 2, 3, 3, 5, 4]  # parents: paths of different lengths, whose nodes are not side by side
FIRST_ROW = 3


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    with interpreted_kernels():
        yield


@dataclass(frozen=True)
class Case:
    """A cache with random rows in every place, and the nodes of a pass with their paths, root first."""

    queries: Tensor  # [N, heads, size]
    keys: Tensor  # [1, KV, rows, size]
    values: Tensor
    paths: list[list[int]]
    length: int

    @classmethod
    def random(cls, heads: tuple[int, int], size: int, dtype: torch.dtype, length: int, paths: list[list[int]]) -> Case:
        generator, rows = torch.Generator().manual_seed(1), FIRST_ROW + length + len(paths) + 5
        queries = torch.randn(len(paths), heads[0], size, generator=generator).to(dtype).to(DEVICE)
        keys, values = torch.randn(2, 1, heads[1], rows, size, generator=generator).to(dtype).to(DEVICE)
        return cls(queries, keys, values, paths, length)

    @property
    def sizes(self) -> AttentionDimensions:
        return AttentionDimensions(self.queries.shape[1], self.keys.shape[1], self.queries.shape[2], 1e-6)

    def location(self, *, is_prefill: bool = False) -> CacheRows:
        first_row, length = (torch.tensor(each, device=DEVICE) for each in (FIRST_ROW, self.length))
        signed = [sum(1 << node for node in path) - ((63 in path) << 64) for path in self.paths]
        ancestors = None if is_prefill else torch.tensor(signed, device=DEVICE)
        rows = self.keys.shape[2] - FIRST_ROW
        return CacheRows(lambda _layer: (self.keys, self.values), first_row, length, ancestors, rows)

    def capped(self, soft_cap: float | None) -> AttentionDimensions:
        return replace(self.sizes, scaling=Scaling(attention_cap=soft_cap))

    def formula(self, window: int | None, soft_cap: float | None, sinks: Tensor | None = None) -> Tensor:
        """In float64, key by key. [N, heads * size]"""
        group, outputs = self.sizes.heads // self.sizes.kv_heads, list[Tensor]()
        for node, path in enumerate(self.paths):
            rows = [*range(self.length), *(self.length + each for each in path)]
            rows = torch.tensor(rows[-window:] if window else rows, device=DEVICE) + FIRST_ROW
            keys, values = (each[0][:, rows].double().repeat_interleave(group, 0) for each in (self.keys, self.values))
            scores = torch.einsum("hd,hrd->hr", self.queries[node].double(), keys) * self.sizes.head_size**-0.5
            scores = soft_cap * (scores / soft_cap).tanh() if soft_cap else scores
            if sinks is not None:
                scores = torch.cat((scores, sinks.double()[:, None]), dim=1)
            weights = scores.softmax(-1)[:, : len(rows)]
            outputs.append(torch.einsum("hr,hrd->hd", weights, values).flatten())
        return torch.stack(outputs).to(self.queries.dtype)

    def has(self, output: Tensor, window: int | None = None, soft_cap: float | None = None) -> bool:
        tolerance = TOLERANCE[output.dtype]
        return torch.allclose(output, self.formula(window, soft_cap), tolerance, tolerance)


def paths_of(parents: list[int]) -> list[list[int]]:
    paths = list[list[int]]()
    for node, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), node])
    return paths


def chain(count: int) -> list[list[int]]:
    return paths_of(list(range(-1, count - 1)))


@pytest.mark.parametrize(
    ("length", "size", "heads", "window", "dtype", "soft_cap"),
    matrix(LENGTHS, SIZES, HEADS, WINDOWS, DTYPES, SOFT_CAPS, rounds=1, seldom=[(17, 1)], step=23),
)
def test_the_attention_of_a_tree_is_that_of_the_formula(length, size, heads, window, dtype, soft_cap):
    case = Case.random(heads, size, dtype, length, paths_of(TREE))

    assert case.has(attention(case.queries, case.location(), 0, case.capped(soft_cap), window), window, soft_cap)


@pytest.mark.parametrize(
    ("length", "count", "heads", "window", "soft_cap"),
    matrix([0, BLOCK_KEYS, SPLIT_KEYS + 1], [3, 65, 130], HEADS, [None, 70], SOFT_CAPS, rounds=1),
)
def test_the_attention_of_a_prefill_is_that_of_the_formula(length, count, heads, window, soft_cap):
    case = Case.random(heads, 64, torch.float32, length, chain(count))

    output = attention(case.queries, case.location(is_prefill=True), 0, case.capped(soft_cap), window)

    assert case.has(output, window, soft_cap)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("is_prefill", [False, True])
def test_a_sink_of_each_head_takes_its_share(is_prefill, dtype):
    case = Case.random((4, 2), 64, dtype, SPLIT_KEYS - 3, chain(7) if is_prefill else paths_of(TREE))
    sinks = torch.tensor([-2.0, 0.5, 3.0, 60.0]).to(dtype).to(DEVICE)

    output = attention(case.queries, case.location(is_prefill=is_prefill), 0, case.sizes, 40, sinks)

    assert torch.allclose(output, case.formula(40, None, sinks), TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("is_prefill", [False, True])
def test_a_head_may_have_512_numbers(is_prefill, dtype):
    case = Case.random((4, 2), 512, dtype, 30, chain(20) if is_prefill else paths_of(TREE))

    assert case.has(attention(case.queries, case.location(is_prefill=is_prefill), 0, case.sizes))


def test_later_nodes_of_a_tree_are_computed_alone():
    """The rows of a pass are those of the last nodes; what they see was written by passes before it."""
    tree = Case.random((4, 2), 64, torch.bfloat16, SPLIT_KEYS - 2, paths_of(TREE))
    location = tree.location()
    together = attention(tree.queries, location, 0, tree.sizes)

    later = replace(location, ancestors=location.ancestors[5:], first_node=5)

    assert torch.equal(attention(tree.queries[5:], later, 0, tree.sizes), together[5:])


def test_the_widest_mask_has_all_64_bits():
    case = Case.random((2, 1), 16, torch.float32, 30, chain(MASK_BITS))

    assert case.has(attention(case.queries, case.location(), 0, case.sizes))


@pytest.mark.parametrize(
    ("heads", "dtype"), matrix(HEADS[:3], DTYPES, seldom=[*HEADS[1:3], torch.float32, torch.float16])
)
def test_a_row_of_a_chain_has_the_same_bits_in_every_batch(heads, dtype):
    whole = Case.random(heads, 64, dtype, SPLIT_KEYS - 9, chain(16))  # the chain goes over the border of a split
    expected = attention(whole.queries, whole.location(), 0, whole.sizes)

    for count in (1, 2, 7):
        few = replace(whole, queries=whole.queries[:count], paths=chain(count))
        assert torch.equal(attention(few.queries, few.location(), 0, few.sizes), expected[:count])


@pytest.mark.parametrize("window", [None, pytest.param(20, marks=pytest.mark.full)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize("length", [BLOCK_KEYS - 3, pytest.param(SPLIT_KEYS - 2, marks=pytest.mark.full)])
def test_a_node_of_a_tree_has_the_bits_of_plain_decoding(length, dtype, window):
    tree = Case.random((4, 2), 64, dtype, length, paths_of(TREE))
    together = attention(tree.queries, tree.location(), 0, tree.sizes, window)

    for node, path in enumerate(tree.paths):
        rows = [*range(FIRST_ROW + length), *(FIRST_ROW + length + each for each in path)]
        committed = length + len(path) - 1  # the nodes of the path, committed one by one
        alone = Case(tree.queries[node][None], tree.keys[:, :, rows], tree.values[:, :, rows], [[0]], committed)
        assert torch.equal(attention(alone.queries, alone.location(), 0, alone.sizes, window)[0], together[node])


def test_the_number_of_rows_of_the_cache_changes_no_bit():
    case = Case.random((4, 2), 64, torch.bfloat16, 70, paths_of(TREE[:3]))
    location = case.location()

    outputs = [
        attention(case.queries, replace(location, kv_length=rows), 0, case.sizes) for rows in (location.kv_length, 5000)
    ]

    assert torch.equal(*outputs)
