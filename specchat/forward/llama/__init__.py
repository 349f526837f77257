"""The networks that are computed here: layers of the Llama architecture and what families add to it.

llama.py               embed, decoder layers, LM head
decoder_layer.py       one layer: attention and MLP with residual connections; heads use it, too
layer_shape.py         what the layers of one network may differ in
per_layer_input.py     per-layer embeddings: a small vector of every layer for a token (Gemma 4)
gated_delta_net.py     the recurrent layer of Qwen3.5 and Qwen3-Next, in chains and trees
hybrid.py              networks with such layers: states of texts, checkpoints to go back to
moe.py                 the MLP of a mixture of experts: router, experts, shared expert; heads use it, too
embedding_rows.py      embeddings that are read row by row
scaling.py             the numbers that a family multiplies with or caps at
rope.py                rotary position embeddings and their scaling
"""
