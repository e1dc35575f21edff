"""`nkismith new NAME`: a spec and a reference that run as they are, to be edited into the op that is wanted."""

from __future__ import annotations

import keyword
from pathlib import Path

from nkismith.kernels.spec import SpecError

_SPEC = """\
op: {name}
summary: Scale every row of x by its own factor (replace this by one sentence about the op).
maths: "y[s, c] = x[s, c] * scale[s]"
dims:                              # sizes the kernel must serve; D: {{one_of: [64, 128]}} lists them
  S: {{min: 1, max: 4096}}
  C: {{min: 1, max: 2048}}
inputs:                            # in the order of the kernel's parameters; shapes may be "C//2", "2*C"
  x:     {{shape: [S, C], dtype: [bfloat16, float32]}}
  scale: {{shape: [S], dtype: float32, values: {{kind: uniform, low: -2, high: 2}}}}
outputs:
  y: {{shape: [S, C], dtype: x.dtype, match: close}}   # close | exact | {{ulp: 1}} | valid_choice
in_place: []                       # inputs the kernel updates
control: {{}}                        # run-time scalars, such as slot: "0 <= slot < N" for an int32 input
accumulate: float32
reduction: 1                       # terms one output element sums; without it, the longest axis of an input
work:                              # bytes, elements and FLOP no kernel can avoid; b = bytes of the case dtype
  hbm_read: "S*C*b + S*4"
  hbm_write: "S*C*b"
  vector: "S*C"
cases:
  smoke:      [{{S: 30, C: 40}}]
  edge:       [{{S: 1, C: 1}}, {{S: 131, C: 513}}]
  production: [{{S: 4096, C: 2048, dtype: bfloat16}}]
targets: [trn2, trn3]
notes: What the person or model that writes the kernel should know.
"""

_REFERENCE = '''\
"""What {name} means, in PyTorch. It runs in float64 to judge kernels: write the maths, not an approximation."""

import torch


def {name}(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x [S, C]; scale [S] -> y [S, C]. Updated in-place inputs come first, then outputs; arguments are not modified."""
    return (x * scale[:, None],)
'''


def new(name: str, parent: Path) -> Path:
    """Write `parent/name/spec.yaml` and `reference.py`, which load and verify as they are; returns the folder.

    Raises SpecError if the name is not a Python name or the folder exists.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise SpecError(f"{name!r} cannot name an op: use a lower-case Python name such as row_scale")
    folder = Path(parent) / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise SpecError(f"{folder} exists already. Choose another name, or edit its spec.yaml.") from None
    except OSError as wrong:
        raise SpecError(f"{folder} cannot be made: {wrong.strerror}. Choose a folder you may write to.") from None
    (folder / "spec.yaml").write_text(_SPEC.format(name=name), encoding="utf-8")
    (folder / "reference.py").write_text(_REFERENCE.format(name=name), encoding="utf-8")
    return folder
