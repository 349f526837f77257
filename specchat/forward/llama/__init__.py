"""The networks that are computed here: layers of the Llama architecture and what families add to it.

llama.py               embed, decoder layers, LM head
decoder_layer.py       one layer: attention, MLP, and its small vector for each token (Gemma 4); heads use it, too
gated_delta_net.py     the recurrent layer of Qwen3.5 and Qwen3-Next, in chains and trees
hybrid.py              networks with such layers: states of texts, checkpoints to go back to
moe.py                 the MLP of a mixture of experts: router, experts, shared expert; heads use it, too
embedding_rows.py      embeddings that are read row by row
variations.py          the numbers that a family multiplies with or caps at, and the shapes of its layers
rope.py                rotary position embeddings and their scaling
"""
