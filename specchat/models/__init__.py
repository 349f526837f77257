"""Files of a model on disk become a loaded target model or draft model, with its tokenizer.

fetch              which files of a hub id are needed; download them, or find them in the hub's cache
http_errors        errors of the hub as one-line messages
context_window     the context length in a config.json, without torch
tensor_files       names, shapes and rows of tensors in safetensors and pickles; WeightLoader
fp8_checkpoints    published FP8 weights with scales, read as floats
int4_checkpoints   published AWQ and GPTQ weights, packed or read as floats
mxfp4_checkpoints  published MXFP4 experts, read as floats
llama_families     the families that forward.llama computes: their configs and tensor names, as a table
gemma4_layers      the shapes of the layers of Gemma 4, from its config
llama_weights      safetensors of a Llama-like model → forward.llama
moe_weights        the experts of a layer, in the layouts of checkpoints → forward.moe
transformers_files any other safetensors → a network of transformers; missing and unknown tensors are refused
network_weights    which weights of a network of transformers are quantized, one after the other, while it is loaded
decoding_forms     how a network of transformers is decoded and uses its weights, as a probe found at its first load
gguf_file          the header of a GGUF file, every count checked against the size of the file
gguf_families      metadata and tensor names of a GGUF file → config.json and published tensor names
gguf_bytes         the rows of a tensor as they are in a GGUF file
gguf_values        blocks of a GGUF file → float32 → bf16
gguf_rows          the rows of a published tensor, as blocks or in bf16
gguf_tensors       the tensors of a GGUF file as those of any model
gguf_splits        the regular expressions of `tokenizer.ggml.pre`
gguf_tokenizer     the tokenizer of a GGUF file → tokenizer.json and chat template
gguf_sources       the GGUF file that a name means: a path, a folder, a model of Ollama
gguf_manifest      where the tensors of a prepared GGUF file are
gguf_preparation   a GGUF file → a folder in the cache with its tokenizer and config
gguf_weights       tensors of a GGUF file → bf16 safetensors
gguf_conversion    all weights of a GGUF file → safetensors, for readers that know nothing else
cached_folders     a folder in the cache that is made once, by one process
load_options       which folder, device and dtype a model has, resolved without torch
load               a folder or hub id → a Model: llama_weights, transformers, or a plugin
token_bytes        a vocabulary piece → bytes
chat_template      messages → prompt text, by the model's Jinja template
tokenizer          text → token ids and back; control tokens in user text are escaped
detokenize         streamed token ids → text, with stop strings
thinking           how a family of models marks its thinking; text → thinking and text
tool_formats       how the families of models write tool calls, as a table
tool_calls         streamed text → text and tool calls
answer_stream      streamed token ids → thinking, text and tool calls
thinking_budget    a limit for the thinking → a grammar over tokens
vocabulary         whether a draft model has the target's tokens
llguidance_grammar JSON schema or regular expression → a grammar over tokens
tool_grammar       the tools that must be called → a grammar over tokens, with a thought before it
"""
