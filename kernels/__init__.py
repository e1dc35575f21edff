"""What must be computed and what was accepted: op specs, references, accepted kernels, the registry."""
