"""One forward pass over a batch of rows: networks, linear layers, attention, fused ops, CUDA graphs."""
