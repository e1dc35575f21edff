"""What the pipeline raises.

PipelineError
├── InputError      an argument, a size or a prompt the caller can correct
├── WeightsError    a file or a tensor that is missing, misshapen or of another model
├── KernelMissing   an op has no accepted kernel and the run does not allow a fallback
├── KernelFailed    an accepted kernel is stale, or cannot be run at the sizes of this run
└── RankFailed      another rank of a distributed run stopped

Every message says what is wrong, where, and how to correct it, in one line or one list.
"""


class PipelineError(Exception):
    """Any failure the pipeline explains itself."""


class InputError(PipelineError, ValueError):
    """An argument, a size or a prompt that the caller can correct."""


class WeightsError(PipelineError):
    """A weight file or a tensor that is missing, misshapen, truncated or of another model."""


class KernelMissing(PipelineError):
    """An op has no accepted kernel for this run, and falling back to PyTorch was not allowed."""


class KernelFailed(PipelineError):
    """An accepted kernel is stale, or cannot be recorded or run at the sizes of this run."""


class RankFailed(PipelineError):
    """Another rank of a distributed run stopped, so this one cannot go on."""
