"""What drafting brings in a long text: tokens per step and CPU time of MagicDec by its window, beside prompt lookup.

    python -m tools.long_text_drafts specchat/chooser/chooser.py --target starter --windows 256,512,1024 --limit 100

The prompt, a question about the file, is prefilled once; then each drafter in turn answers from its rows, and plain
decoding first and last. All answers are greedy, and it is an error if one has another text. The figures are CPU time
of one thread, which other load on the machine changes less than it changes the time on the clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

import torch

from specchat.bench.columns import markdown_table
from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import Attachment, Request
from specchat.drafters.magicdec import MagicDec
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.engine.decode import Generation, GenerationConfig, Step
from specchat.engine.drafter import Drafter
from specchat.engine.sampling import Sampler
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile import load_profile

QUESTION = "What does this file do, and which of its parts are the most important? Explain it in your own words."
MAX_DRAFT_TOKENS = 8


def long_prompt(engine: Engine, file: Path) -> list[int]:
    request = Request(QUESTION, files=(Attachment(file.name, file.read_text(encoding="utf-8")),))
    return list(build_next_prompt(engine.models.tokenizer, "", (), request).token_ids)


def answer(generation: Generation, drafter: Drafter, limit: int) -> tuple[list[Step], float]:
    """The steps of an answer after the prefilled text, which is the same afterwards, and their CPU seconds."""
    length = len(generation.tokens)
    started_at = process_time()
    steps = list(generation.decode(GenerationConfig(drafter, Sampler(), MAX_DRAFT_TOKENS, limit)))
    seconds = process_time() - started_at
    generation.truncate(length)
    return steps, seconds


def measure(engine: Engine, file: Path, drafters: Sequence[tuple[str, Drafter]], limit: int) -> Iterator[list[str]]:
    """A row of the table for each drafter."""
    prompt, results = long_prompt(engine, file), list[tuple[str, list[Step], float]]()
    generation = Generation(engine.models.target, tuple(drafter for _label, drafter in drafters))
    generation.replace_tokens(prompt)
    with engine.models.target.pool.acquire_slot(generation.cache, generation.rows_needed(limit)):
        for _length in generation.prefill():
            pass
        for label, drafter in drafters:
            results.append((label, *answer(generation, drafter, limit)))
    plain_seconds = min(seconds for label, _steps, seconds in results if label == "plain")
    texts = [[token for step in steps for token in step.committed_tokens] for _label, steps, _seconds in results]
    assert all(text == texts[0] for text in texts), "a drafter has changed the text"
    for label, steps, seconds in results:
        drafted, accepted = (sum(each) for each in zip(*((step.drafted, step.accepted) for step in steps), strict=True))
        share = f"{accepted / drafted:.0%}" if drafted else ""
        yield [
            file.name, str(len(prompt)), label, f"{limit / len(steps):.2f}", share, f"{1000 * seconds / limit:.1f}",
            f"{plain_seconds / seconds:.2f}",
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--target", default="starter")
    parser.add_argument("--windows", default="256,512,1024")
    parser.add_argument("--chains", default="2,4", help="draft tokens of a chain")
    parser.add_argument("--limit", type=int, default=100)
    arguments = parser.parse_args()
    engine = load_engine(
        load_profile("chat", {"models.target": arguments.target, "models.heads": [], "limits.context": 2**20})
    )
    torch.set_num_threads(1)
    target = engine.models.target
    assert isinstance(target, LlamaModel), "only our own passes can skip rows"
    windows, chains = ([int(each) for each in text.split(",")] for text in (arguments.windows, arguments.chains))
    drafters = [
        ("plain", Drafter()), ("lookup", PromptLookup()),
        *((f"magicdec {window}, {chain}", MagicDec(target, window, chain)) for window in windows for chain in chains),
        ("plain", Drafter()),
    ]  # fmt: skip
    header = ["file", "prompt", "drafter", "tokens/step", "accepted", "CPU ms/token", "speedup"]
    rows = [row for file in arguments.files for row in measure(engine, file, drafters, arguments.limit)]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
