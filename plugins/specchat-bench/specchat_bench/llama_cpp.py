"""llama.cpp as a contender, where its library is installed: the same weights and tokens, its own passes.

Nothing is linked: `libllama` is loaded by name, and only long stable functions of its header are called, a token batch
in and logits out. The layout of parameters, which may change between releases, is checked before use.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int32, c_uint32, c_void_p
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy
import torch

from specchat.errors import InputError

LIBRARY_VARIABLE = "SPECCHAT_LLAMA"
LIBRARY_HINT = (
    f"{LIBRARY_VARIABLE} names a folder with libllama and libggml, "
    "such as node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 of npm's node-llama-cpp"
)
MISSING_MESSAGE = f"llama.cpp: no library found, so it is left out; {LIBRARY_HINT}"
PREFILL_BATCH = 512  # tokens in one call
FLASH_ATTENTION, CACHE_TYPES, DEFAULT_TYPES = 13, slice(26, 28), [1, 1]  # words; keys and values in 16 bits
DEFAULT_SIZES = [512, 2048, 512, 1]  # context, batch, micro-batch, sequences: the start of the default parameters


@dataclass(frozen=True)
class TimedRun:
    """One answer: its tokens, the passes of the target (0 when unknown), and the seconds from prompt to end."""

    tokens: list[int]
    target_passes: int
    seconds: float


GenerateFunction = Callable[[list[int], int], TimedRun]  # prompt, most tokens of the answer


class _Parameters(Structure):
    """Parameters of a model or a context as opaque words; the structure is longer than both, which is allowed."""

    _fields_ = (("words", c_uint32 * 128),)


class _Batch(Structure):
    _fields_ = (
        ("count", c_int32), ("tokens", c_void_p), ("embeddings", c_void_p), ("positions", c_void_p),
        ("sequence_counts", c_void_p), ("sequences", c_void_p), ("wanted", c_void_p),
    )  # fmt: skip


_Log = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_DISCARD_LOG = _Log(lambda _level, _text, _data: None)


def find_library_folder() -> Path | None:
    """The folder of the library, or its name where the system finds it; None without one."""
    if chosen := os.environ.get(LIBRARY_VARIABLE):
        if not _libraries(Path(chosen), "llama"):
            raise InputError(f"{LIBRARY_VARIABLE}={chosen}: no libllama in this folder")
        return Path(chosen)
    name = find_library("llama")
    return Path(name) if name else None


def required_library_folder() -> Path:
    """As `find_library_folder`; InputError that says how to get the library where there is none."""
    folder = find_library_folder()
    if folder is None:
        raise InputError(f"llama.cpp: no library found; {LIBRARY_HINT}")
    return folder


@dataclass(frozen=True)
class LlamaCppLimits:
    """The numbers of logits of a row and of tokens that the context holds, and the tokens that end an answer."""

    vocab_size: int
    context_size: int
    stop_token_ids: frozenset[int] = frozenset()
    has_float32_cache: bool = False  # instead of 16 bits, and without flash attention


class LlamaCppModel:
    """A GGUF file in llama.cpp."""

    def __init__(self, library: Path, file: Path, limits: LlamaCppLimits) -> None:
        self._limits = limits
        self._library = _open_library(library)
        self._model = self._library.llama_model_load_from_file(
            os.fsencode(file), self._library.llama_model_default_params()
        )
        parameters = self._library.llama_context_default_params()
        if list(parameters.words)[: len(DEFAULT_SIZES)] != DEFAULT_SIZES:
            raise InputError(f"{library}: the parameters of this release of llama.cpp have an unknown layout")
        parameters.words[0] = limits.context_size
        if limits.has_float32_cache:
            if parameters.words[CACHE_TYPES] != DEFAULT_TYPES:
                raise InputError(f"{library}: where this release of llama.cpp has the type of its cache is unknown")
            parameters.words[FLASH_ATTENTION], parameters.words[CACHE_TYPES] = 0, [0, 0]
        self._context = self._library.llama_init_from_model(self._model, parameters) if self._model else None
        if not self._context:
            raise InputError(f"{file}: llama.cpp cannot load this file")
        self._memory = self._library.llama_get_memory(self._context)

    @property
    def release(self) -> str:
        """The versions that the library tells, "llama 0.5.0, ggml 0.25.1 (0ad4a86)"; "" of one too old to tell."""
        return release_of(self._library)

    @classmethod
    def from_folder(cls, library: Path, folder: Path, storage_type: str, limits: LlamaCppLimits) -> LlamaCppModel:
        """The model of a folder, its weights stored as f32, bf16 or q8_0."""
        with TemporaryDirectory(prefix="specchat-gguf-") as temporary_folder:
            path = Path(temporary_folder, "model.gguf")
            from specchat_bench.llama_gguf import write_gguf

            write_gguf(folder, path, storage_type)
            return cls(library, path, limits)

    def generate(self, prompt: list[int], max_tokens: int) -> TimedRun:
        """Generate greedily with as many threads as torch; the cache is cleared before."""
        threads, tokens = torch.get_num_threads(), list[int]()
        self._library.llama_set_n_threads(self._context, threads, threads)
        started_at = perf_counter()
        self.prefill(prompt[:-1])
        while len(tokens) < max_tokens and not self._limits.stop_token_ids.intersection(tokens[-1:]):
            tokens.append(self.decode_token([tokens[-1] if tokens else prompt[-1]]))
        return TimedRun(tokens, len(tokens), perf_counter() - started_at)

    def prefill(self, tokens: Sequence[int]) -> None:
        """Clear the cache and fill it with these tokens."""
        self._library.llama_memory_clear(self._memory, False)
        for start in range(0, len(tokens), PREFILL_BATCH):
            self.decode_token(tokens[start : start + PREFILL_BATCH])

    def decode_token(self, tokens: Sequence[int]) -> int:
        """Run a pass over the tokens; returns the likeliest next token."""
        return int(self.logits(tokens).argmax())

    def logits(self, tokens: Sequence[int]) -> numpy.ndarray:
        """Run a pass over the tokens; returns the logits of the last one, float32 [V], which the next pass replaces."""
        self._run_pass(tokens)
        return numpy.ctypeslib.as_array(
            self._library.llama_get_logits_ith(self._context, -1), (self._limits.vocab_size,)
        )

    def pass_seconds(self, context: int, tokens: Sequence[int]) -> float:
        """Seconds of a pass over these tokens with the logits of each, as a draft is verified.

        The cache holds `context` tokens before and after it. InputError where it cannot drop the others.
        """
        threads = torch.get_num_threads()
        self._library.llama_set_n_threads(self._context, threads, threads)
        wanted = numpy.ones(len(tokens), dtype=numpy.int8)
        started_at = perf_counter()
        self._run_pass(tokens, wanted.ctypes.data)
        self._library.llama_get_logits_ith(self._context, -1)  # waits for the pass
        seconds = perf_counter() - started_at
        if not self._library.llama_memory_seq_rm(self._memory, 0, context, -1):
            raise InputError("llama.cpp cannot drop tokens from its cache of this network")
        return seconds

    def _run_pass(self, tokens: Sequence[int], wanted: int | None = None) -> None:
        """`wanted` is the address of a flag for each token whether its logits are; None for those of the last one."""
        numbers = numpy.asarray(tokens, dtype=numpy.int32)
        batch = _Batch(len(numbers), numbers.ctypes.data, None, None, None, None, wanted)
        if self._library.llama_decode(self._context, batch):
            raise InputError("llama.cpp cannot run a pass: the text is longer than its context")

    def close(self) -> None:
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)


def _open_library(library: Path) -> Any:
    """Load the library and declare its functions; from a folder it selects its kernels for this CPU."""
    names = ("ggml-base", "ggml", "llama") if library.is_dir() else ()
    paths = [_libraries(library, name)[0] for name in names] or [library]
    opened: list[Any] = [ctypes.CDLL(os.fspath(path), ctypes.RTLD_GLOBAL) for path in paths]
    llama = opened[-1]
    for name, result, arguments in _SIGNATURES:
        function = getattr(llama, name)
        function.restype, function.argtypes = result, arguments
    llama.llama_log_set(_DISCARD_LOG, None)
    if library.is_dir():
        opened[1].ggml_backend_load_all_from_path(os.fsencode(library))
    llama.llama_backend_init()
    return llama


def release_of(library: Any) -> str:
    """As `LlamaCppModel.release`; the functions that tell it are as new as their versions."""
    texts = dict[str, str]()
    for name in ("llama_version", "ggml_version", "ggml_commit"):
        if (function := getattr(library, name, None)) is not None:
            function.restype = c_char_p
            texts[name] = function().decode()
    versions = (f"{name} {texts[f'{name}_version']}" for name in ("llama", "ggml") if f"{name}_version" in texts)
    commit = f" ({texts['ggml_commit']})" if "ggml_commit" in texts else ""
    return ", ".join(versions) + commit


def _libraries(folder: Path, name: str) -> list[Path]:
    """libllama.so, libllama.so.0 and libllama.v0.5.0.so, but not libllama-common.so."""
    return sorted(each for each in folder.glob(f"lib{name}.*") if ".so" in each.name or each.suffix == ".dylib")


_SIGNATURES: tuple[tuple[str, Any, list[Any]], ...] = (
    ("llama_log_set", None, [_Log, c_void_p]),
    ("llama_backend_init", None, []),
    ("llama_model_default_params", _Parameters, []),
    ("llama_context_default_params", _Parameters, []),
    ("llama_model_load_from_file", c_void_p, [c_char_p, _Parameters]),
    ("llama_init_from_model", c_void_p, [c_void_p, _Parameters]),
    ("llama_set_n_threads", None, [c_void_p, c_int32, c_int32]),
    ("llama_get_memory", c_void_p, [c_void_p]),
    ("llama_memory_clear", None, [c_void_p, c_bool]),
    ("llama_memory_seq_rm", c_bool, [c_void_p, c_int32, c_int32, c_int32]),
    ("llama_decode", c_int32, [c_void_p, _Batch]),
    ("llama_get_logits_ith", POINTER(c_float), [c_void_p, c_int32]),
    ("llama_free", None, [c_void_p]),
    ("llama_model_free", None, [c_void_p]),
)
