"""Whether our Triton kernels can be used here: they are tried at their first use, and the log says once why not.

Not every torch for CUDA comes with Triton, and no kernel is trusted before it has computed what torch computes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from specchat.devices import kind_of, missing_triton
from specchat.errors import first_line

log = logging.getLogger(__name__)


def triton_module(name: str, device: torch.device) -> Any:
    """A module of this package with kernels; None where the device has none, or the user has turned kernels off."""
    if not kind_of(device).has_kernels or missing_triton():
        return None
    try:
        import_module("triton")  # the module below may be loaded already
        return import_module(f"specchat.forward.cuda.{name}")
    except ImportError:
        return None


def passes(check: Callable[[], bool], kernels: str, fault: str = "give other results") -> bool:
    """Whether kernels pass a check. Where they do not, or none can be compiled, torch computes everything."""
    try:
        is_right = check()
    except Exception as error:  # noqa: BLE001 - the compiler of kernels, its assembler and the driver raise anything
        reason = first_line(error)
        log.warning("the %s cannot be used here (%s); torch computes instead, which is slower", kernels, reason)
        return False
    if not is_right:
        log.warning(
            "the %s %s here with Triton %s, and are not used", kernels, fault, import_module("triton").__version__
        )
    return is_right
