"""Every other architecture, computed by the library transformers.

transformers_model.py  a network of it as a model of ours; trees, chains or plain: the form of its passes
transformers_cache.py  our KV cache as a transformers cache
own_cache.py           plain decoding over the network's own cache, as of recurrent layers
decoding_probe.py      short passes that find the best form which is right
"""
