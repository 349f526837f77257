"""GGUF files, read as they are: every count is checked against the size of the file before it is used.

gguf_sources       the GGUF file that a name means: a path, a folder, a model of Ollama
gguf_file          the header, every count checked against the size of the file
gguf_families      metadata and tensor names → config.json and published tensor names
gguf_keys          the metadata of an architecture, checked
gguf_rope          rotary embeddings → `rope_parameters`
gguf_recurrent     the tensors of recurrent layers, whose heads stand in another order
gguf_heads         the tensors of layers that only draft
gguf_splits        the regular expressions of `tokenizer.ggml.pre`
gguf_tokenizer     the tokenizer of a file → tokenizer.json and chat template
gguf_manifest      where the tensors of a prepared file are
gguf_preparation   a file → a folder in the cache with its tokenizer and config
gguf_rows          the rows of a tensor: as in the file, as float32, and as published, as blocks or in bf16
gguf_tensors       the tensors of a file as those of any model
gguf_conversion    what a plugin does with files: networks that transformers computes, conversions to safetensors
"""
