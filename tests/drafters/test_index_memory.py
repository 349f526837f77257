"""What drafters say of the memory of their indexes is what Python takes for them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import specchat
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.text.tokenizer import Tokenizer

SOURCE = Path(specchat.__file__).parent
TOKENS = 15000


def test_an_index_takes_the_memory_that_is_said():
    code = "".join(path.read_text() for path in sorted((SOURCE / "chat").glob("*.py")))
    tokens = Tokenizer(SOURCE / "embedded" / "target").encode(code)[:TOKENS]
    for drafter in (PromptLookup(), SuffixDecoding()):
        tracemalloc.start()
        try:
            drafter.propose(DraftContext(tokens, Sampler(), 4))
            measured, _peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert 0.8 < measured / drafter.memory_bytes() < 1.25, drafter.name
        drafter.forget(10)
        assert drafter.memory_bytes() < measured / 100
