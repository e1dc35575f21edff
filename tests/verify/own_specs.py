"""Small specs written to a temporary folder, for what no bundled op shows."""

from __future__ import annotations

from pathlib import Path

from nkismith.kernels import scaffold
from nkismith.kernels import spec as specs
from nkismith.kernels.spec import OpSpec

_FRAME = """\
op: {op}
summary: An op that only this test needs.
maths: see the reference
dims: {{S: {{max: 512}}, C: {{max: 512}}}}
inputs: {inputs}
outputs: {outputs}
{more}
work: {{hbm_read: "S*C", hbm_write: "S*C"}}
cases: {{smoke: [{{S: 30, C: 40{case}}}], edge: [{{S: 131, C: 133{case}}}], production: [{production}]}}
"""


def write(
    folder: Path, op: str, inputs: str, outputs: str, body: str, more: str = "", case: str = "", production: str = ""
) -> OpSpec:
    """A spec with dims S and C; `body` is what the reference returns; more: other keys; case: other keys of a case;
    production: a case of it."""
    place = scaffold.new(op, folder)
    (place / "spec.yaml").write_text(
        _FRAME.format(op=op, inputs=inputs, outputs=outputs, more=more, case=case, production=production)
    )
    names = ", ".join(part.split(":")[0].strip() for part in inputs.strip("{}").split("},"))
    (place / "reference.py").write_text(f"import torch\n\n\ndef {op}({names}):\n    return {body}\n")
    return specs.load(place)
