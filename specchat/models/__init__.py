"""Files of a model on disk become a loaded target model or draft model, with its tokenizer.

fetch              which files of a hub id are needed; download them, or find them in the hub's cache
http_errors        errors of the hub as one-line messages
context_window     the context length in a config.json, without torch
tensor_files       names, shapes and rows of tensors in safetensors and pickles; WeightLoader
fp8_checkpoints    published FP8 weights with scales, read as floats
llama_weights      safetensors of a Llama-like model → forward.llama
load_options       which folder, device and dtype a model has, resolved without torch
load               a folder or hub id → a Model: llama_weights, transformers, or a plugin
token_bytes        a vocabulary piece → bytes
chat_template      messages → prompt text, by the model's Jinja template
tokenizer          text → token ids and back; control tokens in user text are escaped
detokenize         streamed token ids → text, with stop strings
vocabulary         whether a draft model has the target's tokens
llguidance_grammar JSON schema or regular expression → a grammar over tokens
"""
