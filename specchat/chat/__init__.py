"""Text in, events out: requests, prompts, sessions and what is kept of them."""
