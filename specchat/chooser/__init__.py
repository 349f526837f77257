"""Which drafter drafts, and how much: the choice that is fastest on this machine, plain decoding included."""
