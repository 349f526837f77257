"""Numbers: the same prompts with and without drafts, side by side in one run. Ratios, never absolute times.

measure, combinations, sample_store   `specchat bench`: every combination beside plain decoding, sample by sample
columns, bench_output                 samples become rows; the table and files of a bench
latency, predicted_speedup            the times of one answer; the speedup that the papers' formula predicts
builtin_prompts, prompt_files, tokenized_prompts      what is asked
chain_passes                          seconds of passes, for plugins/specchat-peers and tools/
lossless_check                        `specchat verify`: equal text, equal distributions
verify_prompts, verify_report         what it decodes, and its report as text
loaded_engine                         the engine of such a command, in its process
head_report                           what `specchat models inspect` says
health_checks                         the checks of `specchat doctor`
gpu/                                  `specchat doctor --gpu`: what a GPU computes, exactly and how fast

The instruments of developers are in tools/, in a clone.
"""
