"""Files of a model on disk become a loaded target model or draft model. Knows no text but the tokenizer of a file.

context_window     the context length in a config.json, without torch
tensor_files       names, shapes and rows of tensors in safetensors and pickles; WeightLoader
fp8_checkpoints    published FP8 weights with scales, read as floats
int4_checkpoints   published AWQ and GPTQ weights, packed or read as floats
mxfp4_checkpoints  published MXFP4 experts, read as floats
llama_families     the families that forward.llama.llama computes: their configs and tensor names, as a table
llama_manifest     which tensor of a checkpoint becomes which weight of a layer
llama_weights      safetensors of a Llama-like model → forward.llama.llama
moe_weights        the experts of a layer, in the layouts of checkpoints → forward.llama.moe
transformers_files any other safetensors → a network of transformers; missing and unknown tensors are refused
decoding_forms     how a network of transformers is decoded and uses its weights, as a probe found at its first load
gguf/              files of GGUF: header, blocks, tensors, tokenizer
load_options       which device and dtype a model has, resolved without torch
mapped_files       weights that stay in files, of which one may become shorter while passes read it
load               a folder → a Model: llama_weights, transformers, or a plugin
kv_files           the rows of a KV cache of a conversation, in files
"""
