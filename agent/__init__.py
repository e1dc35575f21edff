"""Who drafts, how often, when to stop: the loop, its providers and its ledger; the command line."""
