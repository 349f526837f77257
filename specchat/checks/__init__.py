"""Does it work here: decoding that is lossless, a machine in order. Nothing is timed.

lossless_check                  `specchat verify`: equal text, equal distributions
verify_report                   its report as text
builtin_prompts, prompt_files, tokenized_prompts      what is asked, also by plugins/specchat-bench
loaded_engine                   the engine of such a command, in its process
health_checks                   the checks of `specchat doctor`

What measures speed is the plugin specchat-bench; the instruments of developers are in tools/, in a clone.
"""
