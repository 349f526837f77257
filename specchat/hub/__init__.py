"""Which models exist, which of them are on this disk, what fits this machine, and how to download them."""
