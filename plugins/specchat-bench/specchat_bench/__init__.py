"""A plugin that adds `specchat bench`: what drafting, other engines and a GPU bring, measured here and now;
`specchat verify`, which checks that drafting changes no text here; `specchat vram`, which plans the memory of a model;
`specchat stats`, which sums what drafting brought in stored conversations.

Ratios of what ran side by side in one run, never absolute times of one run and another.

command                                the group, and what it has
drafters_command                       `bench drafters`: every combination beside plain decoding, sample by sample
measure, combinations, sample_store    its loop; values; what is kept on disk
columns, bench_output                  samples become rows; its table and files
latency, predicted_speedup             the times of one answer; the speedup that the papers' formula predicts
peers_command                          `bench peers`: against transformers and llama.cpp, on the same weights
compared_engines                       ours, theirs, theirs, ours on each prompt; transformers and its own drafts
llama_cpp, llama_gguf                  llama.cpp by its library; our weights as it reads them
gguf_peers, gguf_peers_table           `--gguf`: one file in both; the table
server_race, server_race_table         `--server`: running servers, over HTTP; the table
verify_command                         `specchat verify`: its options, and its report as text
lossless_check                         equal text, equal distributions
inspect_command                        `bench inspect`: what a head or a draft is, and whether it fits a target
vram_command, memory_notes             `specchat vram`: its tables; what is special about the memory of a model
pairing                                its warnings about a draft model: tokens, training, sizes
answer_command, answer_picture         `specchat inspect`: an answer by the drafter of each token; as a picture
stats_command, answer_sums             `specchat stats`: its table; the sums of the stored answers
builtin_prompts, tokenized_prompts     what is asked
loaded_engine                          the engine of a command, in its process
command_options, work_progress         what commands share: lists of names, files of prompts; how far the work is
chain_passes                           seconds of passes, also for tools/
gpu/                                   `bench gpu`, `specchat doctor --gpu`: what a GPU computes, exactly and how fast

Every process of specchat imports this file, so it only declares the extensions.
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    return [
        Extension("bench", "Measure the drafters, other engines, or a GPU.", "specchat_bench.command:bench"),
        Extension(
            "vram", "Show the memory that a model takes, and whether it fits.", "specchat_bench.vram_command:vram"
        ),
        Extension(
            "inspect", "Show which drafter proposed each token of an answer.", "specchat_bench.answer_command:inspect"
        ),
        Extension(
            "stats", "Show what each drafter brought in your conversations.", "specchat_bench.stats_command:stats"
        ),
        Extension(
            "verify", "Check that drafting does not change the text here.", "specchat_bench.verify_command:verify"
        ),
    ]
