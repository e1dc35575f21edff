"""nki.language: tensors, dtypes, loops, and wrappers that emit nki.isa instructions."""
