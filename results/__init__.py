"""What came out: the store (the only SQL) and reports."""
