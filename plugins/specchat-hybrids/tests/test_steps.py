"""Networks that continue a state with one token only are decoded plainly."""

import torch

from specchat.engine.decode import Generation
from specchat_hybrids.steps import TokenByToken
from tests.each_row import each_row
from tools.zoo_networks import tiny_network


@each_row("family", ["jamba", "recurrent_gemma"])
def test_two_texts_are_those_of_transformers(family):
    reference, prompts = tiny_network(family), ([*range(5, 26)], [*range(60, 40, -1)])
    model = TokenByToken(reference)
    generations = [Generation(model), Generation(model)]
    for generation, prompt in zip(generations, prompts, strict=True):
        generation.replace_tokens(prompt)
    rows = []
    for _step in range(3):  # the texts are read in turn, as in two conversations
        for generation in generations:
            with model.pool.acquire_slot(generation.cache, 64):
                list(generation.prefill())
                root = generation.tokens[-1:]
                rows.append(model.prefill(root, generation.cache).logits[-1])
                generation.tokens.append(int(rows[-1].argmax()))

    assert 1 == model.max_rows
    for generation, last_row in zip(generations, rows[-2:], strict=True):
        with torch.inference_mode():
            whole = reference(input_ids=torch.tensor([generation.tokens[:-1]]), use_cache=False).logits[0, -1]
        torch.testing.assert_close(last_row, whole, atol=2e-3, rtol=2e-3)
