"""One forward pass over a batch of rows: networks, linear layers, attention, fused ops, CUDA graphs.

batch.py                        tokens, positions and attention mask of a pass
llama.py                        networks of the Llama architecture: embed, decoder layers, LM head
decoder_layer.py                one layer: attention and MLP with residual connections; heads use it, too
layer_shape.py                  what the layers of one network may differ in
per_layer_input.py              per-layer embeddings: a small vector of every layer for a token (Gemma 4)
gated_delta_net.py              the recurrent layer of Qwen3.5 and Qwen3-Next, in chains and trees
hybrid.py                       networks with such layers: states of texts, checkpoints to go back to
linear.py quant_linear.py       matmuls with float weights, and with 8-bit and 4-bit weights
moe.py                          the MLP of a mixture of experts: router, experts, shared expert; heads use it, too
expert_linear.py                its linear layers: each expert is read once a pass
int4_linear.py triton_linear.py 4-bit weights of AWQ and GPTQ in one layout, and their product on a GPU
scaling.py                      the numbers that a family multiplies with or caps at
rope.py                         rotary position embeddings and their scaling
attention.py                    additive masks and softmax attention
fused_ops.py                    RMS norm, SwiGLU, GeGLU, RoPE, attention: by torch, native or Triton kernels
native_ops.py native_*.cpp      native kernels: linear layers, attention, and between them
native_build.py                 how they are compiled, when a wheel is built or at their first use
triton_rows.py                  kernels for CUDA, row by row: norms, SwiGLU, RoPE with the write to the KV cache
triton_attention.py             kernels for CUDA: split-KV attention of trees, and the attention of a prefill
triton_ops.py                   the fused ops with these kernels, where they compute what torch computes
cuda_graphs.py                  passes that are captured once and replayed
transformers_model.py           every other architecture, computed by transformers
quant_weight.py                 quantized weights in the code of those architectures
transformers_cache.py           our KV cache as a transformers cache
recurrent.py                    transformers models over their own cache: recurrent layers, and plain decoding
row_steps.py                    the functions of transformers that are replaced during a pass over a few rows
recurrences.py                  gated delta rule, Mamba-2 scan and short convolution, row by row
cache_states.py                 copies of their states, to go back in a text
decoding_form.py                trees, chains or plain: the ways to decode a network of transformers
decoding_probe.py               short passes that find the best form which is right
"""
