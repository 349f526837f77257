"""How publishers spell their heads. One family, one file; each knows names and keys, and computes nothing."""
