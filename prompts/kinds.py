"""What kind of op a spec describes, and what a model needs to know for it.

Read off the spec's work, its words and the PyTorch calls of its reference: which instruction cards the
prompt shows, which worked examples, and under which kind a lesson is filed.
"""

from __future__ import annotations

import ast
import re

from nkismith.kernels.spec import OpSpec
from nkismith.verify.simulator.instructions import TABLE

# A tag, and what in the spec's words or in the reference's calls shows it.
_SIGNS: dict[str, str] = {
    "exp": r"softmax|exp|sigmoid|silu|swish|gelu|tanh|erf|softplus|mish|logsumexp|cross_entropy",
    "norm": r"norm|var|std|mean|rsqrt",
    "reduction": r"sum|mean|max|amax|min|amin|softmax|norm|prod|logsumexp|cross_entropy|var|std|argmax|argmin|all|any",
    "scan": r"cumsum|cumprod|cummax|cummin|scan|recurren\w*|prefix|running|logcumsumexp",
    "select": r"topk|top_k|argmax|argmin|sort|argsort|kthvalue|routing|router",
    "gather": r"gather|scatter\w*|index_select|index_add\w*|index_copy\w*|take|embedding|lookup|one_hot|take_along_dim",
    "mask": r"mask\w*|where|tril|triu|causal|masked_fill|window",
    "transpose": r"transpose\w*|permute|swapaxes|movedim|mT|T|t|moveaxis",
    "trig": r"sin|cos|arctan|atan",
    "log": r"log|log_softmax|logsumexp|cross_entropy|log1p|softplus",
    "conv": r"conv\w*|unfold|pool\w*|roll",
    "int": r"int32|int64|bitwise\w*|shift|floor_divide|remainder|quantiz\w*|pack|unpack",
    "norm_stats": r"layer_norm|group_norm|batch_norm|var|std|instance_norm|layernorm|groupnorm",
}
_KINDS = ("attention", "matmul", "scan", "selection", "gather", "normalisation", "reduction", "movement", "elementwise")

_ALWAYS = (
    "dma_copy", "memset", "tensor_copy", "tensor_tensor", "tensor_scalar", "scalar_tensor_tensor", "activation",
    "tensor_reduce", "reciprocal",
)  # fmt: skip
_CARDS: dict[str, tuple[str, ...]] = {
    "matmul": ("nc_matmul", "nc_transpose", "dma_transpose"),
    "reduction": ("tensor_scalar_reduce", "activation_reduce", "nc_matmul", "nc_transpose"),
    "norm": ("activation_reduce", "nc_matmul"),
    "norm_stats": ("bn_stats", "bn_aggr"),
    "exp": ("activation_reduce",),
    "scan": ("tensor_tensor_scan", "tensor_scalar_cumulative", "nc_matmul", "nc_transpose", "affine_select"),
    "select": ("max8", "nc_find_index8", "nc_match_replace8", "iota", "tensor_copy_predicated", "select_reduce"),
    "gather": ("nc_n_gather", "local_gather", "iota", "nc_matmul", "nc_transpose", "scalar_load"),
    "mask": ("iota", "affine_select", "range_select", "tensor_copy_predicated", "select_reduce"),
    "transpose": ("nc_transpose", "dma_transpose", "nc_matmul"),
    "conv": ("nc_matmul", "nc_transpose"),
    "int": ("iota", "tensor_copy_predicated"),
    "control": ("scalar_load", "iota", "tensor_copy_predicated", "range_select"),
    "trn3": ("activate2", "exponential"),
}  # fmt: skip
_EXAMPLES: tuple[tuple[str, frozenset[str]], ...] = (
    ("matmul_tiled", frozenset({"matmul", "conv"})),
    ("runtime_slots", frozenset({"control", "gather"})),
    ("row_softmax", frozenset({"reduction", "norm", "exp", "select", "scan"})),
    ("transpose_tiled", frozenset({"transpose", "scan", "conv"})),
    ("scale_shift", frozenset()),
)
EXAMPLES_SHOWN = 3


def tags(spec: OpSpec) -> frozenset[str]:
    """Everything that tells which instructions an op may need."""
    reference = (spec.folder / "reference.py").read_text()
    words = set(re.findall(r"\w+", f"{spec.op} {spec.summary} {spec.maths} {spec.notes}".lower()))
    words |= {part for word in words for part in word.split("_")}
    calls = {node.attr for node in ast.walk(ast.parse(reference)) if isinstance(node, ast.Attribute)}
    calls |= {
        node.func.id
        for node in ast.walk(ast.parse(reference))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    found = {tag for tag, sign in _SIGNS.items() if any(re.fullmatch(sign, word) for word in calls | words)}
    products = any(isinstance(node, ast.MatMult) for node in ast.walk(ast.parse(reference)))
    if products or spec.work.matmul not in (0, "0") or calls & {"matmul", "einsum", "bmm", "mm", "linear", "addmm"}:
        found.add("matmul")
    if spec.control:
        found.add("control")
    return frozenset(found)


def kind(spec: OpSpec) -> str:
    """The one kind under which lessons about this op are filed."""
    have = tags(spec)
    if "matmul" in have:
        return "attention" if "exp" in have and "reduction" in have else "matmul"
    for tag, name in (("scan", "scan"), ("select", "selection"), ("gather", "gather"), ("norm", "normalisation")):
        if tag in have:
            return name
    if "reduction" in have:
        return "reduction"
    if spec.in_place or ("transpose" in have and not spec.work.vector):
        return "movement"
    return "elementwise"


def instructions(have: frozenset[str], target: str) -> tuple[str, ...]:
    """Names of the instructions whose cards a prompt shows, the most common first; none that would be refused."""
    wanted = list(_ALWAYS)
    for tag in [*sorted(have), target]:
        wanted += _CARDS.get(tag, ())
    return tuple(name for name in dict.fromkeys(wanted) if name in TABLE)


def examples(have: frozenset[str]) -> tuple[str, ...]:
    """Worked examples closest to the op; the plain elementwise one is always the last."""
    close = [name for name, signs in _EXAMPLES if signs & have]
    return (*close[: EXAMPLES_SHOWN - 1], "scale_shift")
