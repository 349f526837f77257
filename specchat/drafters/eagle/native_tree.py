"""Draft trees of heads over pairs in one call of a native kernel, where all of their operations are native kernels.

`forward/native/native_draft.cpp` grows the tree level by level as `dynamic_tree.py` does.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specchat.drafters.eagle.dynamic_tree import MIN_LOG_PROBABILITY, DraftedChild, TreeConfig
from specchat.drafters.eagle.pair_passes import TextEnd
from specchat.engine.drafter import DraftContext
from specchat.forward.linear.linear import Linear
from specchat.forward.llama.decoder_layer import RopeAngles
from specchat.forward.native.native_mixture import LinearLayer, linear_layer
from specchat.forward.native.native_ops import NativeBorderError, check_border, data_pointer, native_kernels
from specchat.forward.native.native_sampling import sampling_rules
from specchat.forward.native.native_stack import NativeStack

if TYPE_CHECKING:
    from specchat.drafters.eagle.head import PairHead

MAX_PAIRS = 32
_POINTER, _INT64, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_PENALIZE = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _INT64, _INT64)


class _Head(ctypes.Structure):
    """The structures of `native_draft.cpp`, which explains their fields."""

    _fields_ = (
        *((name, _POINTER) for name in ("stack", "feature_norm", "embedding_norm", "embeddings")),
        ("embeds_columns", _INT64),
        ("fusion", LinearLayer),
        ("pair_projection", LinearLayer),
        ("lm_head", LinearLayer),
        ("tokens", _POINTER),
        *((name, _INT64) for name in ("layer_count", "feedback_layer", "is_feature_first", "residual_is_normed")),
        *((name, _INT64) for name in ("context_window", "depth", "width")),
        *((name, _DOUBLE) for name in ("min_level_probability", "min_log_probability")),
    )


class _TextEnd(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("states", "embeddings", "rules", "keys")),
        *((name, _INT64) for name in ("pairs", "max_draft_tokens", "first_position", "committed")),
        *((name, _POINTER) for name in ("cos", "sin")),
        ("rotary", _INT64),
        *((name, _POINTER) for name in ("keys_of_layers", "values_of_layers", "strides")),
        *((name, _INT64) for name in ("is_int8", "threads")),
        ("penalize", _PENALIZE),
    )


class _Nodes(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("tokens", "parents", "log_probabilities")),
        *((name, _INT64) for name in ("capacity", "count")),
    )


STRUCTURES = (_Head, _TextEnd, _Nodes)  # in the order of `draft_bytes`


@dataclass(frozen=True)
class PairNetwork:
    """What a head computes for pairs: norms, the projection of a pair or none, decoder layers, and the LM head.

    Without a `fusion`, the head fuses the states of several layers before.
    """

    stack: NativeStack
    angles: RopeAngles  # of all positions
    embeddings: Tensor  # [rows, D]
    embeds_columns: bool  # the rows are those of the columns of the logits, and not of tokens
    feature_norm: Tensor | None
    embedding_norm: Tensor | None
    fusion: Linear | None
    pair_projection: Linear | None
    lm_head: Linear
    token_ids: Tensor | None  # of the columns
    context_window: int
    feedback_layer: int  # whose states are the next inputs
    is_feature_first: bool
    residual_is_normed: bool


class NativeTrees:
    """Drafts trees with one head, for all texts."""

    max_pairs = MAX_PAIRS

    def __init__(self, head: PairHead, network: PairNetwork, config: TreeConfig) -> None:
        self.head, self.network, self.config = head, network, config
        self._dtype = network.embeddings.dtype
        self._kernel = native_kernels().require_kernel("draft_tree", self._dtype)
        fusion, pair_projection, lm_head = (
            LinearLayer() if linear is None else linear_layer(linear, self._dtype)
            for linear in (network.fusion, network.pair_projection, network.lm_head)
        )
        assert fusion and pair_projection and lm_head, "`is_possible` would have said no"
        self._columns, self._state_size = lm_head.outputs, fusion.inputs or network.embeddings.shape[1]
        self._head = _Head(
            network.stack.program.address, data_pointer(network.feature_norm), data_pointer(network.embedding_norm),
            network.embeddings.data_ptr(), network.embeds_columns, fusion, pair_projection, lm_head,
            data_pointer(network.token_ids), len(network.stack.layers), network.feedback_layer,
            network.is_feature_first, network.residual_is_normed, network.context_window, config.depth, config.width,
            config.min_level_probability, MIN_LOG_PROBABILITY,
        )  # fmt: skip
        self._check_network()

    @staticmethod
    def is_possible(network: PairNetwork) -> bool:
        """Whether all operations of this network are native kernels."""
        linears = (network.lm_head, *([network.pair_projection] if network.pair_projection is not None else []))
        dtype = network.embeddings.dtype
        return (
            all(layer.sliding_window is None for layer in network.stack.layers)
            and native_kernels().kernel("draft_tree", dtype) is not None
            and all(linear_layer(each, dtype) is not None for each in linears)
        )

    @torch.inference_mode()
    def draft(self, end: TextEnd, context: DraftContext, budget: int) -> list[DraftedChild]:
        """Compute the pairs, and the children of all nodes that the head computes for the tree after them.

        What follows the pairs in the cache belongs to no text.
        """
        network, config, cache, sampler = self.network, self.config, end.cache, context.sampler
        slot, count, width = cache.require_slot(), len(end.tokens), network.embeddings.shape[1]
        states = (end.hidden_states if network.fusion else self.head.fuse(end.hidden_states)).contiguous()
        embeddings = self.head.embed(torch.tensor(end.tokens)).contiguous()
        check_border(
            "draft_tree", network.embeddings, (states, (count, self._state_size)), (embeddings, (count, width))
        )
        last_row = cache.length + count + config.depth * config.width
        position = end.first_position + cache.length + count  # of the first level behind the pairs
        if count < 1 or last_row > slot.rows or position + config.depth > len(network.angles.cos):
            raise NativeBorderError(f"draft_tree: {count} pairs, row {last_row} of {slot.rows}, position {position}")
        keys = np.array(sampler.noise_keys(list(range(position, position + config.depth))), dtype=np.int32)
        rules = sampling_rules(sampler, self._columns, is_reduced=network.token_ids is not None)
        capacity = config.width * (1 + (config.depth - 1) * config.width)
        numbers, log_probabilities = np.empty((2, capacity), dtype=np.int64), np.empty(capacity)
        nodes = _Nodes(numbers[0].ctypes.data, numbers[1].ctypes.data, log_probabilities.ctypes.data, capacity, 0)
        penalize = _LevelPenalties(context, self._columns, self._dtype, network.token_ids)
        addresses = network.stack.program.cache_addresses(slot)
        text_end = _TextEnd(
            states.data_ptr(), embeddings.data_ptr(), ctypes.addressof(rules), keys.ctypes.data, count,
            budget, end.first_position, cache.length, network.angles.cos.data_ptr(),
            network.angles.sin.data_ptr(), network.angles.cos.shape[-1], ctypes.addressof(addresses.keys),
            ctypes.addressof(addresses.values), ctypes.addressof(addresses.strides), addresses.is_int8,
            torch.get_num_threads(), penalize.function,
        )  # fmt: skip
        self._kernel(ctypes.addressof(self._head), ctypes.addressof(text_end), ctypes.addressof(nodes))
        penalize.check()
        cache.commit(list(range(count)))
        found = (each[: nodes.count].tolist() for each in (numbers[0], numbers[1], log_probabilities))
        return [
            DraftedChild(token, parent if parent >= 0 else None, log_probability)
            for token, parent, log_probability in zip(*found, strict=True)
        ]

    def _check_network(self) -> None:
        """NativeBorderError where the kernel would read beyond a tensor."""
        network, like = self.network, self.network.embeddings
        size = network.stack.program.hidden_size
        rows = self._columns if network.embeds_columns else len(like)
        norms = [each for each in (network.feature_norm, network.embedding_norm) if each is not None]
        check_border("draft_tree", like, (like, (rows, size)), *((norm, (size,)) for norm in norms))
        for table in (network.angles.cos, network.angles.sin):
            check_border("draft_tree", like, (table, (len(table), 1, table.shape[-1])))
        tokens = network.token_ids
        if tokens is not None:
            check_border("draft_tree", tokens, (tokens, (self._columns,)))
            if not network.embeds_columns and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(like):
                raise NativeBorderError("draft_tree: tokens without an embedding")
        elif not network.embeds_columns and self._columns > len(like):
            raise NativeBorderError(f"draft_tree: {len(like)} embeddings of {self._columns} tokens")
        if network.fusion is not None and self._head.fusion.outputs != size:
            raise NativeBorderError("draft_tree: the fusion of states has another shape")
        inputs = (2 * size, size) if network.pair_projection is not None else None
        if inputs is not None and (self._head.pair_projection.inputs, self._head.pair_projection.outputs) != inputs:
            raise NativeBorderError("draft_tree: the projection of a pair has another shape")
        first_inputs = size if inputs is not None else 2 * size
        if network.stack.program.input_size != first_inputs or self._head.lm_head.inputs != size:
            raise NativeBorderError("draft_tree: matrices of other sizes than the hidden states")


class _LevelPenalties:
    """Penalizes the logits of a level where the kernel has them: `engine/penalties.py` is the one who knows how."""

    def __init__(self, context: DraftContext, columns: int, dtype: torch.dtype, token_ids: Tensor | None) -> None:
        self._context, self._columns, self._dtype, self._token_ids = context, columns, dtype, token_ids
        self._error: BaseException | None = None
        self.function = _PENALIZE(self._penalize) if context.seen_tokens is not None else _PENALIZE()

    def check(self) -> None:
        """Raise what a call raised: an exception does not pass through the kernel."""
        if self._error is not None:
            raise self._error

    def _penalize(self, logits: int, paths: int, count: int, depth: int) -> None:
        try:
            seen, shape = self._context.seen_tokens, (count, self._columns)
            assert seen is not None, "penalties need the tokens of the text"
            memory = (ctypes.c_char * (count * self._columns * self._dtype.itemsize)).from_address(logits)
            numbers = (ctypes.c_int64 * (count * depth)).from_address(paths or logits)
            rows = [numbers[row * depth : (row + 1) * depth] for row in range(count)]
            level = torch.frombuffer(memory, dtype=self._dtype).view(shape)
            self._context.sampler.penalties.apply(level, seen, rows, self._token_ids)
        except BaseException as error:  # noqa: BLE001 - a kernel calls this: `check` raises it
            self._error = error
