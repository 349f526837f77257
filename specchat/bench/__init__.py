"""Numbers: the same prompts with and without, side by side in one run. Ratios, never absolute times."""
