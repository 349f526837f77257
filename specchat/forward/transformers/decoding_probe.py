"""Compares the passes of a network with one pass over the whole text, to find out how it can be decoded.

A network of transformers may ignore our masks or positions, keep states elsewhere than in its cache, or not continue a
state: then drafts, or even plain answers, would be silently wrong. A few short passes tell, before the first answer.
This module knows networks and passes, and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specchat.engine.cache import KVCache
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError, PluginError, first_line
from specchat.forward.transformers.own_cache import OwnCacheModel, has_recurrent_layers
from specchat.forward.transformers.transformers_model import (
    CHAINS,
    OWN_CACHE,
    TREES,
    DecodingForm,
    TransformersModel,
    quantized_bytes,
)
from specchat.plugins.discovery import find_extensions
from specchat.plugins.own_plugins import install_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specchat.forward.batch import BatchLimits

# The text passes every window of the probe. The last part of the prompt is shorter than a convolution, which then needs
# its state.
TEXT_TOKENS, PREFILL_CHUNKS = 26, ((0, 7), (7, 10), (10, 12))
ROOT_TOKEN = 12  # the first token after the prefill
PROBE_WINDOW = 8  # tokens: windows are narrowed, so that a short text leaves them
WINDOW_KEYS = ("sliding_window", "attention_chunk_size")
TOLERANCE = {torch.float32: 2e-3}  # of the logits of a row, relative to their spread
HALF_DTYPES = (torch.bfloat16, torch.float16)
# Of quantized weights: the last bit of a float may decide how an activation is rounded to 8 bits. Most rows must agree
# as those of floats do; only where no form passes, as rounding adds up in large networks, more is allowed.
QUANT_TOLERANCES = (2e-3, 0.02)
HALF_TOLERANCE, HALF_SHARE = 0.15, 0.7  # 16 bits round, and change an expert here and there: most rows must agree

LARGEST_IN_FLOAT32 = 4 * 2**30  # bytes of 16-bit weights that are probed in float32, in which they take twice as many
PROBE_VERSION = 6  # of this file: a change of the checks asks every model again

RECURRENT = "its recurrent layers have one state and not one for each branch"

ModelBuilder = Callable[["PreTrainedModel", int | None, "BatchLimits"], TransformersModel]


def find_form(network: PreTrainedModel, limits: BatchLimits) -> DecodingForm:
    """The first of the forms whose passes agree with a whole pass; ModelError when none does."""
    is_recurrent, reason = has_recurrent_layers(network), ""
    with _narrow_windows(network), _in_float32(network):
        text, forms = _text(network), [DecodingForm(name) for name in decoding_forms()]
        attention = getattr(network.config, "attention_layers", None) or ()
        forms = [form for form in forms if form.has_own_cache or not is_recurrent]
        for expected, form in product(_expectations(network), forms):
            model = partial(build_model, network, form, None, limits)
            fault = _fault(lambda model=model, expected=expected: _check(model(), text, expected))
            if not fault and form.name == TREES and "local" in attention:
                # GPT-Neo cuts its local attention by row, and rows of a tree are not in the order of their positions
                reason = "its local attention counts rows and not positions"
                continue
            if not fault:
                return DecodingForm(form.name, RECURRENT if is_recurrent and form == forms[0] else reason)
            reason = reason or fault
    remedy = f"; a plugin may decode it: {each}" if (each := missing_plugin_line()) else ""
    raise ModelError(f"passes over parts of a text do not give the logits of the whole text: {reason}{remedy}")


def missing_plugin_line() -> str:
    """How the plugin with more forms is installed; empty where a plugin has some."""
    return "" if find_extensions("decoding_forms") else install_line("hybrids")


def decoding_forms() -> Mapping[str, ModelBuilder]:
    """The adapter of each form, the best form first."""
    of_plugins = find_extensions("decoding_forms", (TREES, CHAINS, OWN_CACHE))
    return {
        TREES: TransformersModel,
        CHAINS: TransformersModel,
        **{name: each.call for name, each in of_plugins.items()},
        OWN_CACHE: OwnCacheModel,
    }


def build_model(
    network: PreTrainedModel, form: DecodingForm, context_window: int | None, limits: BatchLimits
) -> TransformersModel:
    """The adapter of a form."""
    model = decoding_forms()[form.name](network, context_window, limits)
    model.supports_trees = model.supports_trees and form.name == TREES
    model.form = form
    return model


class _PassError(Exception):
    """What a pass did wrong."""


class _Expected:
    """Logits of whole passes, without any cache."""

    def __init__(self, network: PreTrainedModel, tolerance: float, share: float) -> None:
        self.network, self.tolerance, self.share = network, tolerance, share

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> Tensor:
        network: Any = self.network
        out = network(input_ids=torch.tensor([tokens], device=network.device), use_cache=False)
        return out.logits[0].float()

    def compare(self, what: str, actual: Tensor, tokens: list[int], rows: slice) -> None:
        """Raise _PassError unless these logits are those of some rows of a whole pass over `tokens`."""
        expected, actual = self.logits(tokens)[rows], actual.float()
        if not bool(expected.isfinite().all()):
            raise ModelError("its logits are not finite numbers")
        spread = (expected - expected.mean(-1, keepdim=True)).norm(dim=-1).clamp_min(1e-9)
        error = (actual - expected).norm(dim=-1) / spread
        if not float((error <= self.tolerance).float().mean()) >= self.share:
            raise _PassError(f"{what} differs from a whole pass")


def _expectations(network: PreTrainedModel) -> list[_Expected]:
    """What to compare with, the strictest first."""
    if network.dtype not in TOLERANCE:
        return [_Expected(network, HALF_TOLERANCE, HALF_SHARE)]
    if quantized_bytes(network):
        return [_Expected(network, tolerance, HALF_SHARE) for tolerance in QUANT_TOLERANCES]
    return [_Expected(network, TOLERANCE[network.dtype], 1.0)]


def _check(model: TransformersModel, text: list[int], expected: _Expected) -> None:
    cache = model.pool.open()
    try:
        with model.pool.acquire_slot(cache, len(text)):
            _check_passes(model, cache, text, expected)
            if model.supports_trees:
                _check_tree(model, cache, text, expected)
    finally:
        model.pool.close(cache)


def _check_passes(model: TransformersModel, cache: KVCache, text: list[int], expected: _Expected) -> None:
    """Chunks of a prompt, a chain whose end is rejected, the next chain, one token, and the text after a rollback."""
    root, vocabulary = ROOT_TOKEN, model.vocab_size
    chunks = PREFILL_CHUNKS if model.prefill_chunk <= model.limits.prefill_chunk else ((0, root),)
    for first, end in chunks:
        logits = model.prefill(text[first:end], cache).logits
        expected.compare("a later part of a prompt" if first else "a prompt", logits, text[:end], slice(-1, None))
    if model.max_rows > 1:
        wrong = [(token + 1) % vocabulary for token in text[root + 2 : root + 4]]
        chain = DraftTree(text[root])
        chain.add_chain([text[root + 1], *wrong])
        drafted = text[: root + 2] + wrong
        expected.compare("a chain of drafts", model.forward(chain, cache).logits, drafted, slice(root, None))
        cache.commit([0, 1])
        chain = DraftTree(text[root + 2])
        chain.add_chain(text[root + 3 : root + 6])
        logits = model.forward(chain, cache).logits
        expected.compare("a chain after rejected drafts", logits, text[: root + 6], slice(root + 2, None))
        cache.commit([0, 1, 2, 3])
    for position in range(cache.length, cache.length + 2):
        logits = model.forward(DraftTree(text[position]), cache).logits
        expected.compare("one token", logits, text[: position + 1], slice(-1, None))
        cache.commit([0])
    cache.rollback(root)
    if cache.length == 0:  # what a rollback cannot keep is read again
        model.prefill(text[:root], cache)
    logits = model.forward(DraftTree(text[root]), cache).logits
    expected.compare("a token after a rollback", logits, text[: root + 1], slice(-1, None))
    cache.commit([0])


def _check_tree(model: TransformersModel, cache: KVCache, text: list[int], expected: _Expected) -> None:
    """A wrong branch before the right one, and a pass after only the right one was kept."""
    root, vocabulary = ROOT_TOKEN + 1, model.vocab_size
    wrong = [(token + 1) % vocabulary for token in text[root + 1 : root + 4]]
    tree = DraftTree(text[root])
    tree.add_chain(wrong)
    tree.add_chain(text[root + 1 : root + 4])
    logits = model.forward(tree, cache).logits
    rows = slice(root + 1, None)
    expected.compare("a branch of a tree", logits[1:4], text[: root + 1] + wrong, rows)
    expected.compare("the second branch of a tree", logits[4:], text[: root + 4], rows)
    cache.commit([0, 4, 5, 6])
    chain = DraftTree(text[root + 4])
    chain.add_chain(text[root + 5 : root + 8])
    logits = model.forward(chain, cache).logits
    expected.compare("a chain after a tree", logits, text[: root + 8], slice(root + 4, None))


def _fault(check: Callable[[], None]) -> str:
    """What a check finds wrong; empty for nothing. A network may raise anything for masks that it does not take."""
    try:
        check()
    except _PassError as fault:
        return str(fault)
    except torch.OutOfMemoryError:
        raise
    except PluginError as error:
        return first_line(error)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return f"our KV cache does not suit it ({first_line(error)[:100]})"
    return ""


def _text(network: Any) -> list[int]:
    """Tokens that are spread over the vocabulary, the same ones every time."""
    vocabulary = int(network.get_output_embeddings().weight.shape[0])
    return [7919 * (index + 1) ** 2 % vocabulary for index in range(TEXT_TOKENS)]


@contextmanager
def _narrow_windows(network: PreTrainedModel) -> Generator[None]:
    config: Any = network.config.get_text_config(decoder=True)
    windows = {key: window for key in WINDOW_KEYS if isinstance(window := getattr(config, key, None), int) and window}
    try:
        for key, window in windows.items():
            setattr(config, key, min(window, PROBE_WINDOW))
        yield
    finally:
        for key, window in windows.items():
            setattr(config, key, window)


@contextmanager
def _in_float32(network: PreTrainedModel) -> Generator[None]:
    """Compute a small network of 16 bits in float32: rounding hides a wrong pass, or makes a right one look wrong.

    Every number of 16 bits is one of float32, so they come back as they were.
    """
    tensors = [each for each in (*network.parameters(), *network.buffers()) if each.dtype in HALF_DTYPES]
    size = sum(each.nbytes for each in tensors)
    if getattr(network, "hf_quantizer", None) is not None or size > LARGEST_IN_FLOAT32:
        tensors = []
    dtypes = [each.dtype for each in tensors]
    try:
        for tensor in tensors:
            tensor.data = tensor.data.float()
        yield
    finally:
        for tensor, dtype in zip(tensors, dtypes, strict=True):
            tensor.data = tensor.data.to(dtype)
