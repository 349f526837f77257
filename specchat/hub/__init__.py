"""Which models exist, which are on this disk, what fits this machine, and how to download them. Imports no torch.

catalog.toml, catalog_sizes.json, catalog   the models that specchat knows, with their heads and draft models
architecture            a model as a list of matrices and KV layers
config_architecture     config.json → KV layers and dimensions
safetensors_headers     headers of safetensors and GGUF files → Architecture
local_models            the embedded models, folders, the hub's cache, Ollama and LM Studio
runnable_models         those on this disk that fit the free memory
model_size              which models are too small for some work, and the sentence about it
machine                 GPUs, main memory, CPU features, bandwidth; runs the probes
memory_plan                bytes of weights, KV cache and workspace
recommend, pair_text    the best pair for a device; its two lines and its profile
draft_on_disk           a smaller model on this disk with the tokens of a target
find_models             where a model or head is; a hub id is downloaded
needed_files            which files of a hub id are needed, and their hashes
bounded_response        limits for what a hub sends
repo_files              the files of a hub id, with sizes and hashes; errors of the hub as one-line messages
pull                    download with resume and hash check
disk_space              errors of the disk as one-line messages
package_download        a model file out of a wheel of the Python package index
remove                  delete a model from the hub's cache
package_probes          do torch, bitsandbytes, native ops or Triton kernels work? In a process of its own
"""
