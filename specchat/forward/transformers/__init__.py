"""Every other architecture, computed by the library transformers.

transformers_model.py  a network of it as a model of ours
transformers_cache.py  our KV cache as a transformers cache
quant_weight.py        quantized weights in the code of those architectures
recurrent.py           models over their own cache: recurrent layers, and plain decoding
row_steps.py           the functions of transformers that are replaced during a pass over a few rows
decoding_form.py       trees, chains or plain: the ways to decode such a network
decoding_probe.py      short passes that find the best form which is right
"""
