"""Kernels for CUDA, and passes that are captured once and replayed.

triton_rows.py       row by row: norms, SwiGLU, RoPE with the write to the KV cache
triton_attention.py  split-KV attention of trees, and the attention of a prefill
triton_linear.py     the product of weights of 4 and 8 bits
triton_tree.py       the growth of a draft tree by one level
triton_sampling.py   the choice of tokens: temperature, noise and the best columns
triton_truncation.py where top-k, top-p and min-p cut rows of logits
kernel_trial.py      whether kernels can be used here
triton_ops.py        the fused ops with these kernels, where they compute what torch computes
cuda_graphs.py       passes that are captured once and replayed
"""
