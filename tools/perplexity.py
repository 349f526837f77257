"""The perplexity of a model on a text, by formats of weights and KV cache: how much a format costs in quality.

    python -m tools.perplexity FILE --target starter --weights float,gguf --kv-cache float,int8

The text is read in windows, as rows of one pass after the other, so every format is computed as in decoding.
"""

from __future__ import annotations

import argparse
from itertools import pairwise, product
from math import exp
from pathlib import Path

from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat.loading.load_engine import load_engine
from specchat.profile.profile_files import load_profile

WINDOW, ROWS = 1024, 32  # tokens of a context that begins anew, if not otherwise asked for; tokens of a pass


def mean_loss(model: Model, tokens: list[int], window_tokens: int = WINDOW) -> float:
    """The mean negative log-likelihood of each token after the first of its window."""
    total = 0.0
    starts = range(0, len(tokens) - 1, window_tokens)
    for first in starts:
        window, cache = tokens[first : first + window_tokens + 1], model.pool.open()
        with model.pool.acquire_slot(cache, len(window) + ROWS):
            for begin, end in pairwise([*range(0, len(window) - 1, ROWS), len(window) - 1]):
                tree = DraftTree(window[begin])
                tree.add_chain(window[begin + 1 : end])
                scores = model.forward(tree, cache).logits.float().log_softmax(-1)
                cache.commit(list(range(end - begin)))
                total -= sum(float(row[token]) for row, token in zip(scores, window[begin + 1 : end + 1], strict=True))
        model.pool.close(cache)
    return total / (len(tokens) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", default="starter")
    parser.add_argument("--weights", default="float", help="formats, separated by commas")
    parser.add_argument("--kv-cache", default="float", help="formats, separated by commas")
    parser.add_argument("--window", type=int, default=WINDOW, help="tokens of a context, which then begins anew")
    arguments = parser.parse_args()
    profile = load_profile("chat").override({"models.target": arguments.target, "models.draft": "", "models.heads": ()})
    for weights, kv_cache in product(arguments.weights.split(","), arguments.kv_cache.split(",")):
        models = load_engine(profile.override({"models.weights": weights, "models.kv_cache": kv_cache})).models
        tokens = models.tokenizer.encode(arguments.file.read_text(encoding="utf-8"))
        perplexity = exp(mean_loss(models.target, tokens, arguments.window))
        print(f"{weights}, KV cache {kv_cache}: {perplexity:.3f} over {len(tokens)} tokens", flush=True)


if __name__ == "__main__":
    main()
