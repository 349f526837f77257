"""CUDA graphs for passes over few rows: captured once, then replayed without the cost of launching every kernel.

A graph works at fixed addresses and shapes. The rows of all KV caches are one arena, and where a text lies there, how
long it is and what each node sees are numbers that the device reads, so a graph depends on the number of rows alone.
There is one for each of GRAPH_WIDTHS, captured when the model is loaded; a pass is padded to the next of them. vLLM
and SGLang choose graphs by batch size in the same way.

The input is embedded rows, or the output of earlier layers, so that these may stay on a CPU, and one small tensor of
numbers. The output matrix, the noise of the sampler and the choice of the token are in the graph: one replay computes a
step.

Knows addresses and shapes. The function to capture and the way to capture it are arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.cache_sizes import GRAPH_WIDTHS
from specchat.engine.kv_arena import KVArena, write_rows
from specchat.engine.model import CaptureProgress, ModelOutput
from specchat.engine.pass_clock import paused_clock
from specchat.engine.sampling import NO_NOISE, DeviceNoise, NoiseInputs
from specchat.errors import first_line
from specchat.forward.attention import AttentionMask
from specchat.forward.batch import EXACT_ROWS, CacheRows, ForwardBatch, ForwardDepth, Nodes, chain_nodes
from specchat.forward.cuda.kernel_trial import Capture, triton_module

if TYPE_CHECKING:
    from specchat.forward.llama.gated_delta_net import RecurrentPass

HEADER_NUMBERS = 5
MAX_VOCABULARY = 2**31 - 1

Result = TypeVar("Result")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PassOutput:
    """What a pass computes, at addresses that the next replay writes to."""

    logits: Tensor  # [N, V]
    selected: Tensor | None  # hidden states of the requested layers, concatenated [N, layers * D]
    samples: Tensor  # as `sampling.pack_samples` [N, 2]

    def rows(self, first: int, last: int) -> ModelOutput:
        """A copy of some rows of logits, and of the hidden states of all rows before `last`."""
        selected = self.selected[:last].clone() if self.selected is not None else None
        return ModelOutput(self.logits[first:last].clone(), selected)


@dataclass(frozen=True)
class GraphSettings:
    """How graphs are captured, and the rows of the KV arena that they work on."""

    capture: Capture
    arena_rows: int


@dataclass(frozen=True)
class GraphedNetwork(Generic[Result]):
    """What is captured."""

    compute: Callable[[Tensor, ForwardBatch, DeviceNoise, ForwardDepth], Result]  # from such rows
    no_rows: Callable[[ForwardDepth], Tensor]  # with the size and dtype of those of a depth, on the device [0, D]
    windows: frozenset[int | None]  # sliding windows of the layers
    attention_mask: Callable[[Tensor, int | None], AttentionMask]  # of the rows that each row sees, and a window
    reads_cache_rows: bool  # kernels need no mask
    recurrent_pass: Callable[[Tensor], RecurrentPass | None] = lambda _ancestors: None  # of nodes with these ancestors


class CudaGraphs(Generic[Result]):
    """The graphs of a network, or of a part of it, over the KV arena of its model. Exact passes all have one width."""

    def __init__(self, capture: Capture, arena: KVArena, network: GraphedNetwork[Result], *, exact: bool) -> None:
        self.capture, self.arena, self.sizes = capture, arena, (EXACT_ROWS,) if exact else GRAPH_WIDTHS
        self.is_disabled = False
        self._network = network
        self._graphs: dict[tuple[ForwardDepth, int], CapturedFunction[Result]] = {}

    @torch.inference_mode()
    def run(
        self, nodes: Nodes, rows: Tensor, cache: KVCache, depth: ForwardDepth, noise: NoiseInputs = NO_NOISE
    ) -> Result | None:
        """The output of these nodes, padded; None when they are too many for a graph, or none can be captured.

        rows: their embeddings, or what earlier layers made of them [N, D]
        """
        slot, width = cache.require_slot(), self.width_for(len(nodes.depths))
        if self.is_disabled or width is None or cache.length + width > slot.rows:
            return None
        numbers = _graph_numbers(nodes.padded(width), slot.first_row, cache.length, noise)
        try:
            return self._graph(depth, width).replay(numbers, rows)
        except RuntimeError as error:
            self._disable(error)
            return None

    def width_for(self, count: int) -> int | None:
        """The number of rows of the graph for `count` nodes."""
        return next((size for size in self.sizes if size >= count), None)

    @torch.inference_mode()
    def capture_all(self, depth: ForwardDepth, progress: CaptureProgress) -> None:
        """Capture the graphs of a depth, the largest first: the smaller ones then fit into its memory."""
        empty_text = self.arena.rows, 0  # behind all slots
        for done, width in enumerate(sorted(self.sizes, reverse=True)):
            progress(done, len(self.sizes))
            if self.is_disabled:
                return
            try:
                self._graph(depth, width).capture(_graph_numbers(chain_nodes([0] * width), *empty_text, NO_NOISE))
            except RuntimeError as error:
                self._disable(error)
        progress(len(self.sizes), len(self.sizes))

    def clear(self) -> None:
        self._graphs.clear()

    def __len__(self) -> int:
        return len(self._graphs)

    def _graph(self, depth: ForwardDepth, width: int) -> CapturedFunction[Result]:
        key = depth, width
        if key not in self._graphs:

            def compute(numbers: Tensor, rows: Tensor) -> Result:
                batch = self._forward_batch(numbers, width)
                noise = device_noise(numbers[2:HEADER_NUMBERS], numbers[HEADER_NUMBERS + 2 * width :])
                return self._network.compute(rows, batch, noise, depth)

            like = self._network.no_rows(depth)
            numbers = torch.zeros(HEADER_NUMBERS + 4 * width, dtype=torch.long, device=like.device)
            self._graphs[key] = CapturedFunction(self.capture, numbers, like.new_zeros(width, like.shape[-1]), compute)
        return self._graphs[key]

    def _disable(self, error: RuntimeError) -> None:
        self.is_disabled = True
        self.clear()
        warn_without_graphs(error)

    def _forward_batch(self, numbers: Tensor, width: int) -> ForwardBatch:
        """The inputs of the layers, built on the device. Captured too, so all shapes are fixed."""
        first_row, length = numbers[0], numbers[1]
        positions = numbers[HEADER_NUMBERS : HEADER_NUMBERS + width]
        ancestors = numbers[HEADER_NUMBERS + width : HEADER_NUMBERS + 2 * width]
        kv_length, start = self.arena.layers[0][0].shape[2], first_row + length
        new_rows = start + torch.arange(width, device=numbers.device)

        def write_kv(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            return write_rows(self.arena.layers[layer], new_rows, keys, values)

        recurrent = self._network.recurrent_pass(ancestors)
        if self._network.reads_cache_rows:
            cache_rows = CacheRows(self.arena.layers.__getitem__, first_row, length, ancestors, kv_length)
            return ForwardBatch(positions, {}, write_kv, cache_rows=cache_rows, recurrent=recurrent)
        index, row = torch.arange(width, device=numbers.device), torch.arange(kv_length, device=numbers.device)
        node, is_node = (row - start).clamp(0, width - 1), (row >= start) & (row < start + width)
        node_mask = ((ancestors[:, None] >> index) & 1).bool()
        allowed = torch.where(is_node, node_mask[:, node], (row >= first_row) & (row < start))
        row_position = torch.where(is_node, positions[node], row - first_row)
        masks = {
            window: self._network.attention_mask(
                allowed if window is None else allowed & (row_position > positions[:, None] - window), window
            )
            for window in self._network.windows
        }
        return ForwardBatch(positions, masks, write_kv, read_kv=self.arena.layers.__getitem__, recurrent=recurrent)


def warn_without_graphs(error: RuntimeError) -> None:
    """Log why there are no CUDA graphs from here on."""
    reason = f"no CUDA graph can be captured ({first_line(error)})"
    if isinstance(error, torch.OutOfMemoryError):
        reason = "no GPU memory is left for CUDA graphs"
    log.warning("%s; kernels are launched one by one, which is slower", reason)


class CapturedFunction(Generic[Result]):
    """A function of numbers and rows at fixed addresses, as a CUDA graph."""

    def __init__(
        self, capture: Capture, numbers: Tensor, rows: Tensor, compute: Callable[[Tensor, Tensor], Result]
    ) -> None:
        self._capture, self._numbers, self._rows, self._compute = capture, numbers, rows, compute
        self._replay: Callable[[], None] | None = None
        self._outputs: list[Result] = []

    def capture(self, numbers: Tensor) -> None:
        """Capture it with these numbers, unless it is captured."""
        if self._replay is None:
            self._numbers.copy_(numbers, non_blocking=True)
            with paused_clock():
                self._replay = self._capture(self._run)

    def replay(self, numbers: Tensor, rows: Tensor) -> Result:
        """The output for these inputs, valid until the next replay; there may be fewer rows than captured."""
        self._rows[: len(rows)].copy_(rows)
        self.capture(numbers)
        self._numbers.copy_(numbers, non_blocking=True)
        cast("Callable[[], None]", self._replay)()
        return self._outputs[-1]

    def _run(self) -> None:
        self._outputs[:] = [self._compute(self._numbers, self._rows)]


def _graph_numbers(nodes: Nodes, first_row: int, length: int, noise: NoiseInputs) -> Tensor:
    """All that changes from pass to pass: the place of the text, positions, ancestors, the numbers of the sampler."""
    count = len(nodes.depths)
    positions = np.array(nodes.depths) + length
    header = np.array([first_row, length, *noise_header(noise)])
    return torch.from_numpy(np.concatenate((header, positions, _ancestor_bits(nodes), noise_keys(noise, count))))


def noise_header(noise: NoiseInputs) -> tuple[int, int, int]:
    """Vocabulary, temperature and scale of the noise. A float is passed as the bits of a float64."""
    temperature, scale = np.array([noise.temperature, noise.scale]).view(np.int64).tolist()
    return MAX_VOCABULARY if noise.vocab_size is None else noise.vocab_size, temperature, scale


def noise_keys(noise: NoiseInputs, count: int) -> NDArray[np.int64]:
    """The keys of `count` rows, one after the other; zeros where there is no noise."""
    keys = np.zeros((count, 2), np.int64)
    if noise.keys:
        keys[: len(noise.keys)] = noise.keys
    return keys.reshape(-1)


def device_noise(header: Tensor, keys: Tensor) -> DeviceNoise:
    """What `noise_header` [3] and `noise_keys` [2 N] passed."""
    temperature, scale = header[1].view(torch.float64), header[2].view(torch.float64)
    return noise_kind(header.device)(keys.view(-1, 2).to(torch.int32), temperature, scale, header[0])


def noise_kind(device: torch.device) -> type[DeviceNoise]:
    """What samples in a graph: kernels where a device has Triton, else operations of torch."""
    kernels = triton_module("triton_sampling", device)
    return DeviceNoise if kernels is None else kernels.TritonNoise


def _ancestor_bits(nodes: Nodes) -> NDArray[np.int64]:
    """The nodes that each node sees, as the bits of one number. [N]"""
    count = len(nodes.depths)
    mask = np.zeros((count, 64), np.bool_)
    mask[:, :count] = nodes.attention_mask.numpy()
    return np.packbits(mask, axis=1, bitorder="little").view("<i8")[:, 0]


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
