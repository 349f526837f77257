"""CUDA graphs for passes over few rows: captured once, then replayed without the cost of launching every kernel.

A chain of draft tokens, each of which is the input of the next pass, is one graph, too.

A graph works at fixed addresses, so it belongs to one slot, one number of rows and one bucket of keys. A pass is padded
to the next captured number of rows, and attention looks at the rows of keys up to the next bucket; the mask hides the
rest. Everything that changes between steps (tokens, positions, text length, node mask) is one small tensor that is
copied to the device before a replay, and the device builds the masks from it. gpt-fast uses static caches in the same
way, vLLM and SGLang choose graphs by batch size.

Knows addresses and shapes. The function to capture and the way to capture it are arguments.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specchat.engine.cache import KVCache, Slot
from specchat.engine.pass_clock import paused_clock
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import ForwardBatch, ForwardDepth, HiddenStates, Nodes

CAPTURE_SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)  # rows
MIN_KV_BUCKET = 256  # rows of keys
MAX_GRAPHS_PER_SLOT = 48  # the least recently used one is dropped

Capture = Callable[[Callable[[], None]], Callable[[], None]]  # prepares a function, and returns its replay
ForwardFunction = Callable[[ForwardBatch, ForwardDepth], HiddenStates]
LayerKV = list[tuple[Tensor, Tensor]]  # keys and values of a slot [1, H, rows, size]
ChainStep = Callable[[ForwardBatch], Tensor]  # a pass over one token -> the token that follows it [1]
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class CudaGraphs:
    """The graphs of a model. `attention_mask` makes a mask of what rows may see."""

    def __init__(
        self, capture: Capture, windows: frozenset[int | None], attention_mask: Callable[[Tensor], AttentionMask]
    ) -> None:
        self.capture, self.windows, self.attention_mask = capture, windows, attention_mask
        self.is_disabled = False
        self._graphs_by_slot: WeakKeyDictionary[Slot, OrderedDict[Hashable, _CapturedGraph[Any]]] = WeakKeyDictionary()

    def run(
        self, nodes: Nodes, cache: KVCache, depth: ForwardDepth, compute: ForwardFunction, exact: bool = False
    ) -> HiddenStates | None:
        """The states of these nodes; None when they are too many for a graph, or when none can be captured."""
        count, slot = len(nodes.depths), cache.require_slot()
        width = next((size for size in CAPTURE_SIZES if size >= count), None)
        if self.is_disabled or width is None or cache.length + width > slot.rows:
            return None
        kv_length = slot.rows if exact else min(kv_bucket(cache.length + width), slot.rows)
        layers = slot.layers

        def run_pass(inputs: Tensor) -> HiddenStates:
            tokens, positions = inputs[1 : 1 + 2 * width].view(2, width)
            node_mask = inputs[1 + 2 * width :].view(width, width).bool()
            return compute(self._forward_batch(layers, kv_length, inputs[0], tokens, positions, node_mask), depth)

        inputs = _graph_inputs(nodes.padded(width), cache.length)
        states = self._replay(slot, (width, kv_length, depth), inputs, nodes.tokens, run_pass)
        if states is None:
            return None
        selected = states.selected
        # cloned, because the next replay writes to the same address
        return HiddenStates(states.final[:count], selected[:count].clone() if selected is not None else None)

    def run_chain(
        self, token: Tensor, steps: int, cache: KVCache, step: ChainStep, graph_key: Hashable
    ) -> Tensor | None:
        """A chain of tokens, each of which `step` computes from a pass over the one before. [1] -> [steps]

        One graph, so the host waits for no token in between. None as in `run`. The rows stay uncommitted. `graph_key`
        distinguishes different `step` functions.
        """
        slot = cache.require_slot()
        if self.is_disabled or cache.length + steps > slot.rows:
            return None
        kv_length, layers = min(kv_bucket(cache.length + steps), slot.rows), slot.layers

        def run_steps(inputs: Tensor) -> Tensor:
            tokens, node_mask = [inputs[1:]], torch.ones(1, 1, dtype=torch.bool, device=inputs.device)
            for index in range(steps):
                length = inputs[0] + index
                batch = self._forward_batch(layers, kv_length, length, tokens[-1], length[None], node_mask)
                tokens.append(step(batch))
            return torch.cat(tokens[1:])

        inputs = torch.tensor([cache.length, 0])
        tokens = self._replay(slot, (steps, kv_length, graph_key), inputs, token, run_steps)
        return tokens.clone() if tokens is not None else None

    def __len__(self) -> int:
        return sum(len(graphs) for graphs in self._graphs_by_slot.values())

    def _replay(
        self, slot: Slot, key: Hashable, inputs: Tensor, tokens: list[int] | Tensor, compute: Callable[[Tensor], Result]
    ) -> Result | None:
        """The result for these inputs, in which `tokens` follow the first number; None if none can be captured."""
        try:
            return self._graph(slot, key, len(inputs), compute).replay(inputs, tokens)
        except RuntimeError as error:
            self.is_disabled = True
            self._graphs_by_slot.clear()
            has_no_memory = isinstance(error, torch.OutOfMemoryError)
            reason = (
                "no GPU memory is left for CUDA graphs"
                if has_no_memory
                else f"no CUDA graph can be captured ({str(error).partition(chr(10))[0]})"
            )
            log.warning("%s; kernels are launched one by one, which is slower", reason)
            return None

    def _graph(
        self, slot: Slot, key: Hashable, size: int, compute: Callable[[Tensor], Result]
    ) -> _CapturedGraph[Result]:
        graphs = self._graphs_by_slot.setdefault(slot, OrderedDict())
        if key not in graphs:
            inputs = torch.zeros(size, dtype=torch.long, device=slot.layout.device)
            graphs[key] = _CapturedGraph(self.capture, inputs, compute)
            if len(graphs) > MAX_GRAPHS_PER_SLOT:
                graphs.popitem(last=False)
        graphs.move_to_end(key)
        return graphs[key]

    def _forward_batch(
        self, layers: LayerKV, kv_length: int, length: Tensor, tokens: Tensor, positions: Tensor, node_mask: Tensor
    ) -> ForwardBatch:
        """The inputs of the layers, built on the device. Captured too, so all shapes are fixed.

        length [], tokens, positions [N], node_mask bool [N, N]
        """
        width, row = len(tokens), torch.arange(kv_length, device=length.device)
        node = (row - length).clamp(0, width - 1)
        is_node = (row >= length) & (row < length + width)
        allowed = torch.where(is_node, node_mask[:, node], row < length)
        row_position = torch.where(is_node, positions[node], row)
        masks = {
            window: self.attention_mask(
                allowed if window is None else allowed & (row_position > positions[:, None] - window)
            )
            for window in self.windows
        }
        new_rows = length + torch.arange(width, device=length.device)

        def write_kv(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            stored_keys, stored_values = layers[layer]
            stored_keys.index_copy_(2, new_rows, keys)
            stored_values.index_copy_(2, new_rows, values)
            return stored_keys[:, :, :kv_length], stored_values[:, :, :kv_length]

        return ForwardBatch(tokens, positions, masks, write_kv)


class _CapturedGraph(Generic[Result]):
    """A function of a few numbers at a fixed address; captured at its first replay."""

    def __init__(self, capture: Capture, inputs: Tensor, compute: Callable[[Tensor], Result]) -> None:
        self.inputs, self._capture, self._compute = inputs, capture, compute
        self._replay: Callable[[], None] | None = None
        self._outputs: list[Result] = []

    def replay(self, inputs: Tensor, tokens: list[int] | Tensor) -> Result:
        """The result for these inputs, valid until the next replay. Tokens on the device are copied into the inputs."""
        self.inputs.copy_(inputs, non_blocking=True)
        if isinstance(tokens, Tensor):
            self.inputs[1 : 1 + len(tokens)] = tokens
        if self._replay is None:
            with paused_clock():
                self._replay = self._capture(self._run)
        self._replay()
        return self._outputs[-1]

    def _run(self) -> None:
        self._outputs[:] = [self._compute(self.inputs)]


def _graph_inputs(nodes: Nodes, length: int) -> Tensor:
    """Everything that changes from pass to pass: text length, tokens, positions, node mask."""
    tokens = nodes.tokens if isinstance(nodes.tokens, list) else [0] * len(nodes.depths)
    positions = [depth + length for depth in nodes.depths]
    return torch.cat((torch.tensor([length, *tokens, *positions]), nodes.attention_mask.flatten().long()))


def kv_bucket(rows: int) -> int:
    """The number of rows of keys that a pass looks at: 256, 384, 512, 768, 1024, …; the mask hides at most a third.

    >>> [kv_bucket(rows) for rows in (1, 257, 400, 1025)]
    [256, 384, 512, 1536]
    """
    power = max(MIN_KV_BUCKET, 1 << (rows - 1).bit_length())
    between = power // 4 * 3
    return between if MIN_KV_BUCKET < between and rows <= between else power


class CudaGraphCapture:
    """Captures the graphs of one model, which share a memory pool because no two of them run at the same time.

    The pool lives as long as any of its graphs, and nothing can be captured into a dead pool, so one small graph is
    kept for life. All captures use one stream, because cuBLAS allocates a workspace for every stream that it meets.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool, self._stream = device, torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)
        self._keeper: torch.cuda.CUDAGraph | None = None

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        self._keeper = self._keeper or self._capture(lambda: torch.zeros(1, device=self._device))
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):  # libraries choose kernels and allocate workspaces in their first run
            run()
        self._stream.synchronize()  # so that no pass is timed with it
        return self._capture(run).replay

    def _capture(self, run: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            run()
        return graph
