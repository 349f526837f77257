"""Tries every text family of transformers in the engine with tiny random networks; makes a table of docs/models.md.

    pip install ./plugins/specchat-hybrids         the table is that with the plugin
    python -m tools.model_zoo                      all families, some minutes
    python -m tools.model_zoo gpt2 bamba qwen3_5_text
    python -m tools.model_zoo --write docs/models.md

A network is saved and loaded as any model. Greedy answers are compared: plain with `generate` of transformers, drafted
with plain, and after a rollback with a fresh one. Drafts are often right and often wrong, in chains and in trees. With
quantized weights, its drafted answers are compared with its own plain ones.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.errors import ModelError
from specchat.forward.transformers.transformers_model import TransformersModel
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_hybrids.quant_weight import quant_weights
from tools.zoo_networks import VOCABULARY, families, tiny_network

PROMPT = random.Random(1).choices(range(3, VOCABULARY), k=21)
ANSWER_TOKENS, DRAFT_TOKENS, PREFILL_CHUNK = 24, 6, 16
KEPT_TOKENS = 9  # of the prompt, after a rollback
WEIGHT_FORMATS = ("int8", "nf4")
NEAR_TIE = 0.01  # of the spread of the logits: what rounding of activations may decide
BEGIN, END = "<!-- zoo -->", "<!-- /zoo -->"
HEADER = (
    "| family | loads | equals transformers | trees | chains | int8 | nf4 | why not |\n"
    "|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class ZooRow:
    """What one family can do here; a reason for each thing that it cannot."""

    family: str
    loads: bool = False
    equals_transformers: bool = False
    trees: bool = False
    chains: bool = False
    formats: tuple[str, ...] = ()  # of WEIGHT_FORMATS
    reasons: tuple[str, ...] = ()
    is_lossless: bool = True  # what is not drafted cannot be wrong

    @property
    def is_explained(self) -> bool:
        """Whether every no has a reason, and nothing that is done is wrong."""
        is_right = self.is_lossless and (self.equals_transformers or not self.loads)
        has_no = not (self.loads and self.trees and self.chains and self.formats == WEIGHT_FORMATS)
        return is_right and (bool(self.reasons) or not has_no)

    def text(self) -> str:
        cells = (self.loads, self.equals_transformers, self.trees, self.chains)
        marks = ["yes" if cell else "no" for cell in (*cells, *(each in self.formats for each in WEIGHT_FORMATS))]
        return f"| {' | '.join([self.family, *marks, '; '.join(self.reasons).replace('|', '/')])} |"


class OracleTrees(Drafter):
    """Drafts the answer that follows, with wrong tokens in it, and with wrong branches beside it where `width` is 2."""

    name = "oracle"

    def __init__(self, answer: list[int], width: int) -> None:
        self.answer, self.width, self.random = answer, width, random.Random(2)

    def propose(self, context: DraftContext) -> DraftTree:
        tree = DraftTree(context.tokens[-1])
        done = len(context.tokens) - len(PROMPT)
        tokens = self.answer[done : done + context.max_draft_tokens // self.width]
        wrong = [(token + 1) % VOCABULARY for token in tokens]
        if self.width == 2:
            tree.add_chain(wrong, source=self.name)
        elif tokens and self.random.random() < 0.5:
            tokens[self.random.randrange(len(tokens))] = wrong[0]
        tree.add_chain(tokens, source=self.name)
        return tree


def try_family(family: str) -> ZooRow:
    """Build a tiny network of a family, load it as a model, and compare what it decodes."""
    try:
        network: Any = tiny_network(family)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return ZooRow(family, reasons=(f"transformers cannot build its default config: {_line(error)}",))
    with TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        try:
            model = load_model(Path(folder), LoadOptions(dtype="float32", device="cpu"))
        except ModelError as error:
            return ZooRow(family, reasons=(str(error).removeprefix(f"{folder}: cannot be loaded: "),))
        refusals = {quant_format: weights_fault(Path(folder), quant_format) for quant_format in WEIGHT_FORMATS}
    return _compare(family, network, model, refusals)


def _compare(family: str, network: Any, model: Model, refusals: Mapping[str, str]) -> ZooRow:
    reasons = [_limitation(model)] if not model.supports_trees else []
    network.generation_config.eos_token_id = None
    generated = network.generate(torch.tensor([PROMPT]), max_new_tokens=ANSWER_TOKENS, do_sample=False)
    expected = generated[0, len(PROMPT) :].tolist()
    plain, is_lossless = _plain_answer(model)
    if plain != expected:
        reasons.append("its plain answer is not that of transformers")
    if not is_lossless:
        reasons.append("drafted answers differ from plain")
    reasons.extend(refusal for refusal in refusals.values() if refusal)
    can_draft = model.max_rows > 1
    return ZooRow(
        family, True, plain == expected, model.supports_trees and is_lossless, can_draft and is_lossless,
        tuple(quant_format for quant_format, refusal in refusals.items() if not refusal), tuple(reasons), is_lossless,
    )  # fmt: skip


def _plain_answer(model: Model) -> tuple[list[int], bool]:
    """The answer without drafts, and whether drafts and rollbacks leave it alone."""
    plain, others = all_answers(model)
    return plain, all(answer == plain for answer in others)


def all_answers(model: Model) -> tuple[list[int], list[list[int]]]:
    """The answer without drafts, and those after a rollback and with drafts."""
    model.prefill_chunk = min(model.prefill_chunk, PREFILL_CHUNK) if model.max_rows > 1 else model.prefill_chunk
    plain = _answers(model, Drafter())
    drafted = [answer for width in (1, 2) for answer in _answers(model, OracleTrees(plain[0], width))]
    return plain[0], [*plain[1:], *drafted]


def _limitation(model: Model) -> str:
    return model.limitation if isinstance(model, TransformersModel) else "its adapter has chains only"


def _answers(model: Model, drafter: Drafter) -> list[list[int]]:
    """The answer to a prompt, and again after the text was rolled back to its first tokens."""
    config = GenerationConfig(drafter, Sampler(), DRAFT_TOKENS, ANSWER_TOKENS)
    generation, answers = Generation(model, (drafter,)), list[list[int]]()
    for prompt in (PROMPT, [*PROMPT[:KEPT_TOKENS], *PROMPT[::-1]], PROMPT):
        generation.replace_tokens(prompt)
        if prompt is PROMPT:
            generation.generate(config)
            answers.append(generation.tokens[len(PROMPT) :])
        else:
            generation.generate(GenerationConfig(Drafter(), Sampler(), 0, 3))
    generation.close()
    return answers


def weights_fault(folder: Path, quant_format: str) -> str:
    """Why a network has no answers with these weights that drafts leave alone; empty when it has."""
    try:
        model = load_model(folder, LoadOptions(dtype="float32", device="cpu", quant_format=quant_format))
    except ModelError as error:
        return f"{quant_format}: {str(error).removeprefix(f'{folder}: cannot be loaded: ')}"
    if isinstance(model, TransformersModel) and not quant_weights(model.network):
        return f"{quant_format}: no matrix can be quantized"
    plain, others = all_answers(model)
    different = next((answer for answer in others if answer != plain), None)
    if different is None:
        return ""
    margin = _margin(model, plain, different)
    kind = "another token of a near tie" if margin < NEAR_TIE else "another token"
    return f"{quant_format}: {kind} with drafts ({margin:.2%} of the spread of its logits)"


def _margin(model: Model, plain: list[int], other: list[int]) -> float:
    """By how much a plain answer prefers its token where another answer leaves it, relative to the spread."""
    same = next(index for index, (ours, theirs) in enumerate(zip(plain, other, strict=True)) if ours != theirs)
    cache, text = model.pool.open(), [*PROMPT, *plain[:same]]
    with model.pool.acquire_slot(cache, len(text)):
        chunks = [text[first : first + model.prefill_chunk] for first in range(0, len(text), model.prefill_chunk)]
        logits = [model.prefill(chunk, cache).logits[-1].float() for chunk in chunks][-1]
    model.pool.close(cache)
    return float((logits[plain[same]] - logits[other[same]]).abs() / (logits.max() - logits.min()))


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:120]


def table(rows: list[ZooRow]) -> str:
    """The rows, what they count, and the command and date that made them."""
    loaded = [row for row in rows if row.loads]
    counts = (
        f"{len(rows)} families: {len(loaded)} load, {sum(row.equals_transformers for row in rows)} with the answers of "
        f"transformers, {sum(row.trees for row in rows)} with trees, {sum(row.chains for row in rows)} with chains, "
        f"{', '.join(f'{sum(each in row.formats for row in rows)} in {each}' for each in WEIGHT_FORMATS)}, "
        f"{sum(not row.is_explained for row in rows)} unexplained."
    )
    made = (
        f"Made by `python -m tools.model_zoo`, {datetime.now(UTC).date()}, transformers {version('transformers')}, "
        f"torch {torch.__version__}, float32 on a CPU."
    )
    return "\n".join([made, "", counts, "", HEADER, *(row.text() for row in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--write", type=Path, help="replace the table of this page")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    import transformers  # not above: tests of other things import this file

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows = list[ZooRow]()
    for family in options.families or families():
        rows.append(try_family(family))
        print(rows[-1].text(), file=sys.stderr, flush=True)
        gc.collect()
    if options.write is None:
        print(table(rows))
    else:
        before, rest = options.write.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        options.write.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}", encoding="utf-8")
    return 0 if all(row.is_explained for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
