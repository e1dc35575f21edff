"""Specs of the worked examples' ops, so that the whole judge can be asked whether they are right."""

from pathlib import Path

from nkismith.kernels import spec

ROWS = "dims: {N: {min: 1, max: 4096}, C: {min: 1, max: 4096}}\n"
CASES = """\
cases:
  smoke: [{N: 30, C: 40}]
  edge: [{N: 1, C: 1}, {N: 131, C: 515}]
  production: [{N: 512, C: 2048, dtype: bfloat16}]
"""
X = "inputs: {x: {shape: [N, C], dtype: [bfloat16, float32]}}\n"
Y = "outputs: {y: {shape: [N, C], dtype: x.dtype}}\n"
WORK = 'work: {hbm_read: "N*C*b", hbm_write: "N*C*b", vector: "N*C"}\n'

SPECS = {
    "scale_shift": (
        ROWS
        + """\
inputs:
  x: {shape: [N, C], dtype: [bfloat16, float32]}
  scale: {shape: [C], dtype: float32}
  shift: {shape: [C], dtype: float32}
reduction: 2
"""
        + Y
        + WORK
        + CASES,
        "def scale_shift(x, scale, shift):\n    return (x * scale + shift,)",
    ),
    "row_softmax": (ROWS + X + Y + WORK + CASES, "def row_softmax(x):\n    return (torch.softmax(x, -1),)"),
    "row_norm": (
        ROWS
        + """\
inputs:
  x: {shape: [N, C], dtype: [bfloat16, float32]}
  w: {shape: [C], dtype: float32}
"""
        + Y
        + WORK
        + CASES,
        "def row_norm(x, w):\n    return (torch.nn.functional.layer_norm(x, x.shape[-1:], w),)",
    ),
    "running_sum": (ROWS + X + Y + WORK + CASES, "def running_sum(x):\n    return (x.cumsum(-1),)"),
    "row_argmax": (
        ROWS
        + X
        + """\
outputs:
  value: {shape: [N, 1], dtype: x.dtype, match: exact}
  index: {shape: [N, 1], dtype: int32, match: {valid_choice: x}}
work: {hbm_read: "N*C*b", hbm_write: "N*(b+4)", vector: "N*C"}
"""
        + CASES,
        "def row_argmax(x):\n    top = x.max(-1, keepdim=True)\n    return top.values, top.indices.int()",
    ),
    "lower_rows": (
        ROWS + X + Y.replace("x.dtype}", "x.dtype, match: exact}") + WORK + CASES,
        "def lower_rows(x):\n"
        "    return (x.where(torch.ones(x.shape, dtype=torch.bool).tril(), torch.tensor(-30000.0, dtype=x.dtype)),)",
    ),
    "column_sum": (
        ROWS
        + X
        + """\
outputs: {y: {shape: [1, C], dtype: float32}}
reduction: N
work: {hbm_read: "N*C*b", hbm_write: "C*4", vector: "N*C"}
"""
        + CASES,
        "def column_sum(x):\n    return (x.sum(0, keepdim=True),)",
    ),
    "transpose_tiled": (
        ROWS + X + "outputs: {y: {shape: [C, N], dtype: x.dtype, match: exact}}\n" + WORK + CASES,
        "def transpose_tiled(x):\n    return (x.T.contiguous(),)",
    ),
    "matmul_tiled": (
        """\
dims: {N: {min: 1, max: 4096}, K: {min: 1, max: 4096}, M: {min: 1, max: 4096}}
inputs:
  x: {shape: [N, K], dtype: [bfloat16, float32]}
  w: {shape: [K, M], dtype: x.dtype}
outputs: {y: {shape: [N, M], dtype: x.dtype}}
reduction: K
work: {hbm_read: "(N*K + K*M)*b", hbm_write: "N*M*b", matmul: "2*N*K*M"}
cases:
  smoke: [{N: 30, K: 40, M: 50}]
  edge: [{N: 1, K: 1, M: 1}, {N: 131, K: 200, M: 600}]
  production: [{N: 512, K: 1024, M: 1024, dtype: bfloat16}]
""",
        "def matmul_tiled(x, w):\n    return (x @ w,)",
    ),
    "runtime_slots": (
        """\
dims: {M: {min: 1, max: 16}, T: {min: 1, max: 1024}, D: {min: 1, max: 512}, n: {min: 1, max: 8}}
inputs:
  pages: {shape: [M, T, D], dtype: [bfloat16, float32]}
  slots: {shape: [n], dtype: int32}
  count: {shape: [1], dtype: int32}
outputs: {y: {shape: [T, D], dtype: pages.dtype}}
control: {slots: "0 <= slots < M", count: "0 <= count <= n"}
reduction: n
work: {hbm_read: "count*T*D*b", hbm_write: "T*D*b", vector: "count*T*D"}
cases:
  smoke: [{M: 5, T: 30, D: 40, n: 4, control: {slots: [4, 0, 2, 1], count: 3}}]
  edge: [{M: 1, T: 131, D: 133, n: 1, control: {slots: [0], count: 1}}]
  production: [{M: 8, T: 512, D: 512, n: 6, dtype: bfloat16, control: {slots: [0, 5, 3, 1, 2, 7], count: 6}}]
""",
        "def runtime_slots(pages, slots, count):\n    return (pages[slots[: int(count)].long()].sum(0),)",
    ),
}


def write(name: str, parent: Path) -> spec.OpSpec:
    """The spec of an example, loaded from a folder below `parent`."""
    folder = parent / name
    folder.mkdir()
    body, reference = SPECS[name]
    head = f"op: {name}\nsummary: The op of the worked example of this name.\nmaths: see the reference\n"
    (folder / "spec.yaml").write_text(head + body)
    (folder / "reference.py").write_text(f"import torch\n\n\n{reference}\n")
    return spec.load(folder)
