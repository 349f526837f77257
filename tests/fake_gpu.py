"""GPUs that are none: tensors that say `cuda:0` and lie in main memory, for tests on machines without a GPU.

They may be of another kind, `mps` or `xpu`, which have no CUDA graphs. Numbers of 64 bits are refused on `mps`. There
is one, and one more for each of `other_gpus`, which are the bytes that these have.

It refuses what a GPU refuses: operations that mix devices, kernels of Triton for another GPU than the selected one,
waits, work of another GPU and copies from the host while a CUDA graph is captured, captures into a memory pool whose
graphs are all gone, and more bytes than it has. It counts the waits of the host, launched kernels, captures, replays
and the bytes that tensors hold. It cannot know which kernel a library chooses, the numbers of low precision, or speed.
Knows nothing of specchat but its folder, to say where a wait is.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self
from weakref import WeakSet, WeakValueDictionary

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tests.nested import tree_leaves, tree_map
from tests.recorder import Call, replay_calls

CPU = torch.device("cpu")
SOURCES = str(Path(__file__).parents[1] / "specchat")
NAME, MEMORY_BYTES = "Fake GPU", 2**40
# operations that launch no kernel unless they have to copy
VIEWS = frozenset((
    "view", "_unsafe_view", "expand", "slice", "select", "permute", "transpose", "t", "unsqueeze", "squeeze",
    "split", "split_with_sizes", "chunk", "detach", "alias", "as_strided", "unbind", "unflatten", "numpy_T", "mT",
    "narrow", "diagonal", "empty", "empty_like", "new_empty", "empty_strided", "expand_as", "view_as", "lift_fresh",
    "is_same_size", "movedim", "swapaxes", "_reshape_alias", "positive", "to", "contiguous", "reshape", "flatten",
    "ravel", "resolve_conj", "resolve_neg", "_lazy_clone",
))  # fmt: skip
WAITING = frozenset(["_local_scalar_dense", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal"])
INDEXING = frozenset(["index", "index_put", "index_put_", "_index_put_impl_"])


def _counted(numbers: Tensor, *arguments: Any, **options: Any) -> Tensor:
    """`histc`, which torch has for integers on GPUs only."""
    return torch.histc(numbers.float(), *arguments, **options).to(numbers.dtype)


SUBSTITUTES: dict[str, Callable[..., Any]] = {"histc": _counted}  # of operations that torch lacks on CPUs


class MixedDevicesError(RuntimeError):
    """An operation on tensors of the GPU and of the host."""


class CaptureError(RuntimeError):
    """What a CUDA graph cannot capture, or where it cannot be captured."""


class GpuTensor(Tensor):
    """A tensor that says `cuda:0`; `inner` holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, device: torch.device | None = None) -> Self:
        device = device or FakeGpu.current().device
        if device.type == "mps" and inner.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
        with torch.inference_mode(False):
            made = torch.Tensor._make_wrapper_subclass(
                cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
                device=device, layout=inner.layout, requires_grad=False,
            )  # fmt: skip
        made.inner = inner
        FakeGpu.current().hold(inner, device.index)
        return made

    def __init__(self, inner: Tensor, device: torch.device | None = None) -> None:
        pass

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return FakeGpu.current().__torch_dispatch__(func, types, args, kwargs)

    def __repr__(self) -> str:
        return f"GpuTensor({tuple(self.shape)}, {self.dtype})"

    # methods that torch's C++ would look up on a device that does not exist

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def cpu(self) -> Tensor:
        return self.to(CPU)

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
        is_already = self.inner.is_contiguous(memory_format=memory_format)
        return self if is_already else torch.clone(self, memory_format=memory_format)

    def bool(self) -> Tensor:
        return self.to(torch.bool)

    def int(self) -> Tensor:
        return self.to(torch.int32)

    def long(self) -> Tensor:
        return self.to(torch.int64)

    def float(self) -> Tensor:
        return self.to(torch.float32)

    def double(self) -> Tensor:
        return self.to(torch.float64)

    def half(self) -> Tensor:
        return self.to(torch.float16)

    def bfloat16(self) -> Tensor:
        return self.to(torch.bfloat16)

    def __invert__(self) -> Tensor:
        return torch.bitwise_not(self)

    def tolist(self) -> Any:
        FakeGpu.current().wait("tolist")
        return self.inner.tolist()

    def item(self) -> Any:
        FakeGpu.current().wait("item")
        return 0 if self.inner.is_meta else self.inner.item()

    def nonzero(self) -> Tensor:
        FakeGpu.current().wait("nonzero")
        return GpuTensor(self.inner.nonzero(), self.device)

    def __bool__(self) -> Any:
        return bool(self.item())

    def __int__(self) -> Any:
        return int(self.item())

    def __index__(self) -> Any:
        return int(self.item())

    def __float__(self) -> Any:
        return float(self.item())

    def __contains__(self, element: Any) -> Any:
        return bool((self == element).any())

    def copy_(self, source: Tensor, non_blocking: Any = False) -> Tensor:
        gpu = FakeGpu.current()
        if not isinstance(source, GpuTensor):
            gpu.upload(waits=not non_blocking)
            if not self.inner.is_meta:
                self.inner.copy_(source)
        else:
            gpu.check_capture([self, source])
            gpu.launch(torch.ops.aten.copy_.default, (self.inner, source.inner), {}, None)
        return self

    def __getitem__(self, key: Any) -> Tensor:
        gpu, inner_key = FakeGpu.current(), _inner_key(key, self)
        if inner_key.gathers:
            return GpuTensor(gpu.launch(Tensor.__getitem__, (self.inner, inner_key.key), {}, None), self.device)
        return GpuTensor(self.inner[inner_key.key], self.device)

    def __setitem__(self, key: Any, value: Any) -> None:
        gpu, inner_key = FakeGpu.current(), _inner_key(key, self)
        gpu.check_capture([self, *([value] if isinstance(value, GpuTensor) else [])])
        if isinstance(value, Tensor) and not isinstance(value, GpuTensor):
            if value.dim():
                gpu.upload(waits=True)
            value = value.to(self.inner.device)
        value = value.inner if isinstance(value, GpuTensor) else value
        gpu.launch(Tensor.__setitem__, (self.inner, inner_key.key, value), {}, None)


class _InnerKey:
    """An index for the inner tensor, and whether the operation is a gather and not a view."""

    def __init__(self) -> None:
        self.key: Any = None
        self.gathers = False


def _inner_key(key: Any, indexed: GpuTensor) -> _InnerKey:
    gpu, found, parts = FakeGpu.current(), _InnerKey(), list(key) if isinstance(key, tuple) else [key]
    for place, part in enumerate(parts):
        if isinstance(part, GpuTensor):
            if part.dtype == torch.bool or part.dim() == 0:
                gpu.wait("index by a mask or a number of the GPU")
            found.gathers = True
            _check_one_gpu("an index", [indexed, part])
            parts[place] = part.inner
        elif isinstance(part, (list, Tensor)) and not (isinstance(part, Tensor) and part.dim() == 0):
            gpu.upload(waits=True)
            found.gathers = True
            numbers = torch.tensor(part, dtype=torch.long) if isinstance(part, list) else part
            parts[place] = numbers.to("meta") if indexed.inner.is_meta else numbers
    found.key = tuple(parts) if isinstance(key, tuple) else parts[0]
    return found


class _DeviceNumbers(TorchFunctionMode):
    """Gives `cuda` its number, which torch would look up in a driver."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if name in {"tensor", "as_tensor"} and _is_gpu(kwargs.get("device")):
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(_numbered(device))
        if name == "to" or "device" in kwargs:
            args, kwargs = tree_map(lambda each: _numbered(each) if _is_gpu(each) else each, (tuple(args), kwargs))
        return func(*args, **kwargs)


def _is_gpu(device: object) -> bool:
    is_name = isinstance(device, (str, torch.device))
    return is_name and str(device).partition(":")[0] == FakeGpu.current().device.type


def _numbered(device: Any) -> torch.device:
    """A GPU with its number; without one it is the selected one."""
    found, gpu = torch.device(device), FakeGpu.current()
    if found.index is not None and found.index >= len(gpu.memory_of):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return gpu.device if found.index is None else found


def _check_one_gpu(name: str, tensors: list[GpuTensor]) -> None:
    if len(devices := {str(each.device) for each in tensors}) > 1:
        raise MixedDevicesError(f"{name} of tensors on {' and '.join(sorted(devices))} in {_place()}")


class FakeGpu(TorchDispatchMode):
    """The device while it is entered. With `has_numbers` False, its tensors have shapes only."""

    _entered: ClassVar[list[FakeGpu]] = []

    def __init__(
        self,
        kind: str = "cuda",
        *,
        has_numbers: bool = True,
        memory_bytes: int = MEMORY_BYTES,
        other_gpus: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.device = torch.device(kind, 0)  # the selected one
        self.has_numbers, self.memory_of = has_numbers, (memory_bytes, *other_gpus)
        self.waits, self.launches, self.captures, self.replays = Counter[str](), 0, 0, 0
        self.peak_bytes: int | None = None  # the most that was held; None: not asked for
        self.captured: list[Call] | None = None  # while a graph is captured, on the selected GPU
        self.pools: dict[object, WeakSet[FakeGraph]] = {}
        self._inner_tensors: list[WeakValueDictionary[int, Tensor]] = [WeakValueDictionary() for _ in self.memory_of]

    @classmethod
    def current(cls) -> FakeGpu:
        if not cls._entered:
            raise RuntimeError("a tensor of the fake GPU is used after its test")
        return cls._entered[-1]

    def __enter__(self) -> Self:
        self._entered.append(self)
        self._numbers = _DeviceNumbers()
        self._numbers.__enter__()
        self._lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        torch._C._set_only_lift_cpu_tensors(self._lifted)
        self._numbers.__exit__(*raised)
        self._entered.pop()

    def reset(self) -> None:
        """Count from zero."""
        self.waits, self.launches, self.captures, self.replays = Counter(), 0, 0, 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all tensors that are alive, each storage once."""
        return sum(map(self.held_on, range(len(self.memory_of))))

    def held_on(self, index: int) -> int:
        """Those of one GPU."""
        storages = [each.untyped_storage() for each in list(self._inner_tensors[index].values())]
        return sum({each._cdata: each.nbytes() for each in storages}.values())

    def hold(self, inner: Tensor, index: int = 0) -> None:
        """Count the bytes of this tensor while it lives; torch.OutOfMemoryError when there are too many."""
        if id(inner) not in (tensors := self._inner_tensors[index]):
            tensors[id(inner)] = inner
            if self.peak_bytes is not None:
                self.peak_bytes = max(self.peak_bytes, self.held_bytes)
            if self.memory_of[index] < MEMORY_BYTES and self.held_on(index) > self.memory_of[index]:
                del tensors[id(inner)]
                raise torch.OutOfMemoryError("the fake GPU is out of memory")

    @contextlib.contextmanager
    def select(self, device: Any) -> Generator[None]:
        """Make another GPU the selected one, as `torch.cuda.device` does."""
        before, self.device = self.device, _numbered(device)
        try:
            yield
        finally:
            self.device = before

    def check_capture(self, tensors: list[GpuTensor]) -> None:
        """CaptureError for work of another GPU than the one whose graph is captured."""
        if self.captured is not None and any(each.device != self.device for each in tensors):
            raise CaptureError(f"work of another GPU in {_place()} while a graph is captured")

    def wait(self, reason: str) -> None:
        """The host waits until the device has computed."""
        if self.captured is not None:
            raise CaptureError(f"{reason} in {_place()} while a graph is captured")
        self.waits[f"{reason} in {_place()}"] += 1

    def upload(self, *, waits: bool) -> None:
        """Numbers are copied from the host."""
        if self.captured is not None:
            raise CaptureError(f"numbers copied from the host in {_place()} while a graph is captured")
        if waits:
            self.wait("copy from the host")

    def launch(self, func: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> Any:
        """Compute and count a kernel, and keep it for the graph that is captured."""
        result = func(*args, **kwargs) if result is None else result
        if self.captured is None:
            self.launches += 1
        else:
            self.captured.append((func, args, kwargs, result))
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), func._schema.name.split("::")[1]
        flat = tree_leaves((args, kwargs))
        tensors = [each for each in flat if isinstance(each, Tensor)]
        ours = [each for each in tensors if isinstance(each, GpuTensor)]
        device = next((each for each in flat if isinstance(each, torch.device)), None)
        if not ours and not _is_gpu(device):
            return func(*args, **kwargs)
        if name in {"_to_copy", "to"} and (moved := self._moved(name, tensors, device, flat, kwargs)) is not None:
            return moved
        if name == "copy_":
            return self._copied(args, kwargs, flat)
        self._check_devices(name, tensors)
        _check_one_gpu(name, ours)
        self.check_capture(ours)
        is_mask_index = name in INDEXING and any(each.dtype in (torch.bool, torch.uint8) for each in tensors[1:])
        if name in WAITING or is_mask_index or (name == "where" and len(tensors) == 1):
            self.wait(name)
        if name == "_local_scalar_dense" and ours[0].inner.is_meta:
            return 0
        return self._computed(func, name, args, kwargs, ours, ours[0].device if ours else _numbered(device))

    def _computed(
        self, func: Any, name: str, args: Any, kwargs: Any, ours: list[GpuTensor], device: torch.device
    ) -> Any:
        inner_device = CPU if self.has_numbers else torch.device("meta")

        def inner(each: Any) -> Any:
            if isinstance(each, GpuTensor):
                return each.inner
            if isinstance(each, Tensor) and each.dim() and not self.has_numbers:
                return each.to("meta")
            return inner_device if _is_gpu(each) else each

        inner_args, inner_kwargs = tree_map(inner, (args, kwargs))
        compute = SUBSTITUTES.get(name, func)
        result = compute(*inner_args, **inner_kwargs)
        known = {id(each.inner): each for each in ours}
        storages = {each.inner.untyped_storage()._cdata for each in ours}
        is_view = all(
            each.untyped_storage()._cdata in storages for each in tree_leaves(result) if isinstance(each, Tensor)
        )
        allocates_only = name.startswith(("empty", "new_empty"))
        if self.captured is not None:
            self.captured.append((compute, inner_args, inner_kwargs, result))
        elif not (name in VIEWS and (is_view or allocates_only)):
            returns = func._schema.returns
            alias = returns[0].alias_info if returns else None
            self.launches += alias is None or alias.is_write

        def outer(each: Any) -> Any:
            found = known.get(id(each))
            is_new = found is None and isinstance(each, Tensor)
            return GpuTensor(each, device) if is_new else found if found is not None else each

        return tree_map(outer, result)

    def _moved(
        self, name: str, tensors: list[Tensor], device: torch.device | None, flat: list[Any], kwargs: dict[str, Any]
    ) -> Tensor | None:
        """The tensor on the other device; None if this is no move between devices."""
        source, dtype = tensors[0], next((each for each in flat if isinstance(each, torch.dtype)), tensors[0].dtype)
        if name == "to" and len(tensors) > 1:
            device, dtype = tensors[1].device, tensors[1].dtype
        device = device if device is None or not _is_gpu(device) else _numbered(device)
        if device is None or device == source.device:
            return None
        if isinstance(source, GpuTensor) and _is_gpu(device):
            self.check_capture([source])
            if self.captured is not None:
                raise CaptureError(f"a copy to another GPU in {_place()} while a graph is captured")
            self.launches += 1
            return GpuTensor(source.inner.clone().to(dtype), device)
        if isinstance(source, GpuTensor):
            self.wait("copy to the host")
            return torch.zeros(source.shape, dtype=dtype) if source.inner.is_meta else source.inner.clone().to(dtype)
        self.upload(waits=not (kwargs.get("non_blocking") or (name == "to" and any(each is True for each in flat))))
        if self.has_numbers:
            return GpuTensor(source.detach().clone().to(dtype), device)
        return GpuTensor(torch.empty_strided(source.shape, source.stride(), dtype=dtype, device="meta"), device)

    def _copied(self, args: Any, kwargs: dict[str, Any], flat: list[Any]) -> Tensor:
        """What `copy_` does between devices, below Python's methods."""
        into, source = args[0], args[1]
        if isinstance(into, GpuTensor):
            return into.copy_(source, bool(kwargs.get("non_blocking")) or any(each is True for each in flat))
        self.wait("copy to the host")
        return into if source.inner.is_meta else into.copy_(source.inner)

    def _check_devices(self, name: str, tensors: list[Tensor]) -> None:
        foreign = [each for each in tensors if not isinstance(each, GpuTensor) and each.dim() > 0]
        if foreign and name in INDEXING:
            self.upload(waits=True)
        elif foreign and len(foreign) < len(tensors):
            shapes = [(tuple(each.shape), str(each.device)) for each in tensors]
            raise MixedDevicesError(f"{name} of {shapes} in {_place()}")


def _place() -> str:
    """The innermost line of specchat."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if (file := frame.f_code.co_filename).startswith(SOURCES):
            return f"{file.removeprefix(SOURCES).lstrip('/')}:{frame.f_lineno}"
        frame = frame.f_back
    return "a test"


class FakeGraph:
    """A captured CUDA graph: its calls, and the tensors that they wrote to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def replay(self) -> None:
        """Compute again, at the same addresses."""
        FakeGpu.current().replays += 1
        with _disable_current_modes(), torch._C.DisableTorchFunction():  # the calls are on inner tensors
            replay_calls(self.calls)


class FakeStream:
    """A queue of the device. Everything is computed at once, so nothing has to be waited for."""

    def __init__(self, device: object = None) -> None:
        self.device = _numbered(device) if device is not None else FakeGpu.current().device

    def wait_stream(self, other: FakeStream) -> None:
        pass

    def synchronize(self) -> None:
        FakeGpu.current().wait("synchronize a stream")


@contextlib.contextmanager
def _capture(graph: FakeGraph, pool: object = None, stream: FakeStream | None = None) -> Generator[None]:
    """Like torch: a memory pool dies with its last graph, and nothing can be captured into a dead one."""
    gpu = FakeGpu.current()
    graphs = gpu.pools.get(pool)
    if graphs is not None and not len(graphs):
        raise CaptureError("use_count > 0: all graphs of this memory pool are gone")
    gpu.pools.setdefault(pool, WeakSet()).add(graph)
    gpu.captures += 1
    gpu.captured = []
    try:
        with gpu.select(stream.device if stream else gpu.device):
            yield
        graph.calls = gpu.captured
    finally:
        gpu.captured = None


def install(monkeypatch: pytest.MonkeyPatch, kind: str = "cuda", *, has_triton: bool = False) -> None:
    """Let torch find the fake GPU. Triton's kernels can run there only in its interpreter, which is slow."""
    if kind != "cuda":
        _install_without_graphs(monkeypatch, kind)
        return
    import bitsandbytes.functional  # it looks for a GPU when it is imported

    torch._C._ensureCUDADeviceGuardSet()
    pools = iter(range(1, 10**9))
    substitutes: dict[str, Any] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: len(FakeGpu.current().memory_of),
        "device": lambda device: FakeGpu.current().select(device),
        "get_device_name": lambda *_: NAME,
        "get_device_capability": lambda *_: (9, 0),
        "mem_get_info": lambda device=None: _memory(device),
        "memory_reserved": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "synchronize": lambda *_: FakeGpu.current().wait("synchronize"),
        "empty_cache": lambda: None,
        "graph_pool_handle": lambda: (0, next(pools)),
        "Stream": FakeStream,
        "current_stream": lambda *_: FakeStream(),
        "stream": lambda stream: FakeGpu.current().select(stream.device),
        "CUDAGraph": FakeGraph,
        "graph": _capture,
    }
    for name, substitute in substitutes.items():
        monkeypatch.setattr(torch.cuda, name, substitute)
    monkeypatch.setattr(bitsandbytes.functional, "name2qmap", {})  # tables on the device that first needed them
    monkeypatch.setattr(Tensor, "cuda", lambda tensor, *_: tensor.to("cuda"))
    if not has_triton:
        monkeypatch.setitem(sys.modules, "triton", None)


def _install_without_graphs(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    substitutes: dict[str, Any] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda *_: NAME,
        "mem_get_info": lambda *_: _memory(),
        "memory_reserved": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "recommended_max_memory": lambda: FakeGpu.current().memory_of[0],
        "current_allocated_memory": lambda: FakeGpu.current().held_bytes,
        "synchronize": lambda *_: FakeGpu.current().wait("synchronize"),
    }
    module = getattr(torch, kind)
    for name, substitute in substitutes.items():
        if hasattr(module, name):  # what torch lacks there stays lacking
            monkeypatch.setattr(module, name, substitute)
    monkeypatch.setitem(sys.modules, "triton", None)


def _memory(device: object = None) -> tuple[int, int]:
    gpu, index = FakeGpu.current(), _numbered(device).index if device is not None else 0
    return gpu.memory_of[index] - gpu.held_on(index), gpu.memory_of[index]


@contextlib.contextmanager
def fake_gpu(
    kind: str = "cuda",
    *,
    has_numbers: bool = True,
    memory_bytes: int = MEMORY_BYTES,
    other_gpus: Sequence[int] = (),
    has_triton: bool = False,
) -> Generator[FakeGpu]:
    """A machine with a fake GPU, or with several."""
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    _forget_trials()
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(monkeypatch, kind, has_triton=has_triton)
        try:
            with FakeGpu(kind, has_numbers=has_numbers, memory_bytes=memory_bytes, other_gpus=other_gpus) as gpu:
                yield gpu
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
            _forget_trials()


def _forget_trials() -> None:
    """What a GPU could do in another test says nothing about this one."""
    from specchat.drafters.eagle.graph import tree_kernels
    from specchat.forward.cuda.device_states import can_step
    from specchat.forward.cuda.triton_ops import triton_ops
    from specchat.forward.linear.block_linear import block_matmul
    from specchat.forward.linear.byte_linear import byte_matmul
    from specchat.forward.linear.expert_linear import tried_layouts
    from specchat.forward.linear.int4_linear import int4_matmul
    from specchat.forward.linear.linear import float_matmul

    for trial in (triton_ops, can_step, tree_kernels, int4_matmul, block_matmul, byte_matmul, float_matmul):
        trial.cache_clear()
    tried_layouts.clear()
    if (products := sys.modules.get("specchat.forward.cuda.triton_linear")) is not None:  # that needs Triton
        products.ended_splits.cache_clear()
