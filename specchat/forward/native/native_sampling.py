"""The tokens after rows of logits, in one call of a native kernel or few launches instead of many operations of torch.

They follow `engine/sampling.py`; on a CPU, penalties come before. Knows logits; knows no network.
"""

import ctypes
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.penalties import SeenTokens
from specchat.engine.sampling import LogitRows, Ranking, Sampler
from specchat.forward.cuda.kernel_trial import triton_module
from specchat.forward.native.native_ops import NativeBorderError, check_border, data_pointer, native_kernels

CPU = torch.device("cpu")


class SamplingRules(ctypes.Structure):
    """`Rules` of the kernels."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p")),
        *((name, ctypes.c_int64) for name in ("top_k", "columns")),
    )


def can_sample(sampler: Sampler, rows: LogitRows, dtype: torch.dtype, device: torch.device = CPU) -> bool:
    """Whether kernels know all rules for these rows."""
    if device.type != CPU.type:
        return _device_kernels(dtype, device) is not None
    dtype = torch.float32 if sampler.has_penalties else dtype
    return rows.token_ids is None and native_kernels().kernel("sample_rows", dtype) is not None


def sample_rows(logits: Tensor, sampler: Sampler, rows: LogitRows, seen_tokens: SeenTokens | None = None) -> Tensor:
    """As `sampling.pack_samples`: the token after each row, and whether its score is a finite number. [N, 2]"""
    if not logits.is_cpu:
        kernels = _device_kernels(logits.dtype, logits.device)
        return kernels.sample_by_rules(logits, sampler, rows, seen_tokens)
    logits, (count, size) = sampler.penalize(logits, rows, seen_tokens).contiguous(), logits.shape
    rules, mask_size = sampling_rules(sampler, size), 0
    allowed = rows.allowed_mask.contiguous() if rows.allowed_mask is not None else None
    if allowed is not None:
        mask_size = allowed.shape[1]
        check_border("sample_rows", allowed, (allowed, (count, max(mask_size, rules.columns))))
    keys, samples = _noise_keys(sampler, rows, count), torch.empty(count, 2, dtype=torch.long)
    native_kernels().require_kernel("sample_rows", logits.dtype)(
        logits.data_ptr(), ctypes.addressof(rules), keys.ctypes.data, data_pointer(allowed), samples.data_ptr(), count,
        size, mask_size, torch.get_num_threads(),
    )  # fmt: skip
    return samples


def rank_rows(
    logits: Tensor, sampler: Sampler, rows: LogitRows, seen_tokens: SeenTokens | None = None, count: int = 1
) -> Ranking:
    """As `Sampler.rank`, for drafters: by the kernel where it knows all rules. [N, V] -> [N, count]"""
    if not logits.is_cpu:
        kernels = _device_kernels(logits.dtype, logits.device)
        if kernels is None or count > kernels.MAX_COUNT:
            return sampler.rank(logits, rows, seen_tokens, count)
        return kernels.rank_by_rules(logits, sampler, rows, seen_tokens, count)
    logits = sampler.penalize(logits, rows, seen_tokens)
    kernel = native_kernels().kernel("rank_rows", logits.dtype) if rows.allowed_mask is None else None
    if kernel is None:
        return sampler.rank(logits, rows, count=count)
    logits, (row_count, size) = logits.contiguous(), logits.shape
    count, tokens = min(count, size), rows.token_ids
    rules = sampling_rules(sampler, size, is_reduced=tokens is not None)
    if tokens is not None:
        check_border("rank_rows", tokens, (tokens, (size,)))
    keys = _noise_keys(sampler, rows, row_count)
    best, scores = torch.empty(row_count, count, dtype=torch.long), torch.empty(row_count, count)
    kernel(
        logits.data_ptr(), ctypes.addressof(rules), keys.ctypes.data, data_pointer(tokens), best.data_ptr(),
        scores.data_ptr(), count, row_count, size, torch.get_num_threads(),
    )  # fmt: skip
    return Ranking(best if tokens is None else tokens[best], scores)


def sampling_rules(sampler: Sampler, size: int, *, is_reduced: bool = False) -> SamplingRules:
    """For rows of so many columns; those of a reduced vocabulary have no padding."""
    columns = size if is_reduced else min(sampler.vocab_size or size, size)
    return SamplingRules(sampler.temperature, sampler.top_p, sampler.min_p, sampler.top_k, columns)


def _device_kernels(dtype: torch.dtype, device: torch.device) -> Any:
    """The module of kernels for all rules; None where a device has none, or they choose other tokens."""
    kernels = triton_module("triton_sampling", device)
    return kernels if kernels is not None and kernels.chooses_as_torch(dtype, device) else None


def _noise_keys(sampler: Sampler, rows: LogitRows, count: int) -> NDArray[np.int32]:
    """[count, 2]"""
    if len(rows.positions) != count:
        raise NativeBorderError(f"{count} rows of logits, and {len(rows.positions)} positions")
    if sampler.temperature == 0:  # nothing reads them
        return np.zeros((count, 2), np.int32)
    return np.array(sampler.noise_keys(rows.positions), dtype=np.int32)
