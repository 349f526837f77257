"""One forward pass over a batch of rows.

batch.py         tokens, positions and attention mask of a pass
attention.py     additive masks and softmax attention
fused_ops.py     RMS norm, SwiGLU, GeGLU, RoPE, attention: by torch, native or Triton kernels
recurrences.py   gated delta rule and short convolution, row by row
linear/          rows times weights, in every format
llama/           our networks
native/          C++ kernels for CPUs
cuda/            Triton kernels and CUDA graphs
transformers/    every other architecture, by the library of that name
"""
