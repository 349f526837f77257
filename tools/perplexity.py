"""The perplexity of a model on a text, by weight format: how much a format costs in quality.

    python -m tools.perplexity FILE --target starter --weights float,gguf

The text is read in windows, as rows of one pass after the other, so every format is computed as in decoding.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from math import exp
from pathlib import Path

from specchat.engine.model import Model
from specchat.engine.tree import DraftTree
from specchat.loading.load_engine import load_engine
from specchat.profile import load_profile

WINDOW, ROWS = 1024, 32  # tokens of a context that begins anew, tokens of a pass


def mean_loss(model: Model, tokens: list[int]) -> float:
    """The mean negative log-likelihood of each token after the first of its window."""
    total = 0.0
    starts = range(0, len(tokens) - 1, WINDOW)
    for first in starts:
        window, cache = tokens[first : first + WINDOW + 1], model.pool.open()
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
    arguments = parser.parse_args()
    profile = load_profile("chat").override({"models.target": arguments.target, "models.draft": "", "models.heads": ()})
    for weights in arguments.weights.split(","):
        models = load_engine(profile.override({"models.weights": weights})).models
        tokens = models.tokenizer.encode(arguments.file.read_text(encoding="utf-8"))
        print(f"{weights}: {exp(mean_loss(models.target, tokens)):.3f} over {len(tokens)} tokens", flush=True)


if __name__ == "__main__":
    main()
