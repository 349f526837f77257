"""Native kernels for CPUs: linear layers, attention, and between them; whole stacks of layers; sampling.

native_build.py     how they are compiled, when a wheel is built or at their first use
native_ops.py       the fused ops, and the calls of all kernels
native_stack.py     the decoder layers of a pass in one call
native_sampling.py  sampling of all rows in one call
*.cpp *.h           the kernels
"""
