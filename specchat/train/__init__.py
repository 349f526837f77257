"""Where the embedded models come from: text in, a small target, its draft and its heads out."""
