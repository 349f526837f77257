"""The tokens after rows of logits on a CPU, in one call of a native kernel instead of many operations of torch.

They follow the rules of `engine/sampling.py`, without penalties and rejection sampling. Knows logits; knows no network.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor

from specchat.engine.sampling import LogitRows, Sampler
from specchat.forward.native_ops import NativeBorderError, check_border, data_pointer, native_kernels


class _Rules(ctypes.Structure):
    """`Rules` of native_sampling.cpp."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p")),
        *((name, ctypes.c_int64) for name in ("top_k", "columns")),
    )


def can_sample(sampler: Sampler, rows: LogitRows, dtype: torch.dtype) -> bool:
    """Whether the kernel knows all rules for these rows."""
    has_other_rules = sampler.has_penalties or sampler.wants_draft_samples or rows.token_ids is not None
    return not has_other_rules and native_kernels().kernel("sample_rows", dtype) is not None


def sample_rows(logits: Tensor, sampler: Sampler, rows: LogitRows) -> Tensor:
    """As `sampling.pack_samples`: the token after each row, and whether its score is a finite number. [N, 2]"""
    count, size = logits.shape
    columns, mask_size = min(sampler.vocab_size or size, size), 0
    allowed = rows.allowed_mask.contiguous() if rows.allowed_mask is not None else None
    if allowed is not None:
        mask_size = allowed.shape[1]
        check_border("sample_rows", allowed, (allowed, (count, max(mask_size, columns))))
    if len(rows.positions) != count:
        raise NativeBorderError(f"sample_rows: {count} rows of logits, and {len(rows.positions)} positions")
    logits = logits.contiguous()
    keys = np.array(sampler.noise_keys(rows.positions), dtype=np.int32) if sampler.temperature > 0 else None
    samples = torch.empty(count, 2, dtype=torch.long)
    rules = _Rules(sampler.temperature, sampler.top_p, sampler.min_p, sampler.top_k, columns)
    native_kernels().require_kernel("sample_rows", logits.dtype)(
        logits.data_ptr(), ctypes.addressof(rules), keys.ctypes.data if keys is not None else None,
        data_pointer(allowed), samples.data_ptr(), count, size, mask_size, torch.get_num_threads(),
    )  # fmt: skip
    return samples
