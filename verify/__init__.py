"""Is it right, how fast: the NKI simulator, legality, comparison, isolation, timing, the verdict."""
