"""Linear layers: rows times weights, in every format of weights.

linear.py         float weights, and the interface of all others
quant_linear.py   8-bit and 4-bit weights
packed_linear.py  blocks of GGUF and Q8_0, multiplied as they are
int4_linear.py    4-bit weights of AWQ and GPTQ in one layout
byte_linear.py    8-bit weights in that layout, for the same kernel of GPUs
expert_linear.py  the layers of experts: each expert is read once a pass
"""
