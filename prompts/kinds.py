"""What kind of op a spec describes, and what a model needs to know for it.

Read off the spec's work, its words and the PyTorch calls of its reference: which instruction cards the
prompt shows, which worked examples, and under which kind a lesson is filed.
"""

from __future__ import annotations

import ast
import re

from nkismith.kernels.spec import OpSpec

# A tag, and what shows it: words of the spec, and calls or attributes of the reference (which are more telling, so
# more of them count).
_WORDS: dict[str, str] = {
    "exp": r"softmax|exp|sigmoid|silu|swish|gelu|tanh|erf|softplus|mish|logsumexp",
    "norm": r"\w*norm|normalis\w*|normaliz\w*|rms|variance",
    "norm_stats": r"layer_?norm|group_?norm|batch_?norm|instance_?norm|variance",
    "reduction": r"softmax|logsumexp|reduction|sums?|maximum|mean",
    "scan": r"cumsum|cumulative|scan|recurrence|prefix",
    "select": r"topk|top_k|argmax|argmin|sort\w*|largest|routing|router",
    "gather": r"gather\w*|scatter\w*|lookup|embedding|table|rows?_of|paged?",
    "mask": r"mask\w*|causal|window\w*|triangular",
    "transpose": r"transpos\w*|permut\w*",
    "trig": r"sin|cos|arctan|rotat\w*",
    "log": r"log|entropy|softplus",
    "conv": r"conv\w*|pool\w*",
    "int": r"int32|bits?|quanti[sz]\w*|pack\w*",
}
_CALLS: dict[str, str] = {
    "exp": r"\w*softmax|exp\w*|sigmoid|silu|gelu|tanh|erf|softplus|mish|logsumexp|cross_entropy",
    "norm": r"\w*_norm|var|std|rsqrt",
    "norm_stats": r"layer_norm|group_norm|batch_norm|instance_norm|var|std",
    "reduction": r"sum|mean|a?max|a?min|\w*softmax|\w*norm|prod|logsumexp|cross_entropy|var|std|all|any",
    "scan": r"cum\w+|logcumsumexp",
    "select": r"topk|argmax|argmin|sort|argsort|kthvalue",
    "gather": r"gather|scatter\w*|index_\w+|take\w*|embedding|one_hot|long",
    "mask": r"where|tril|triu|masked_fill\w*",
    "transpose": r"transpose\w*|permute|swapaxes|movedim|moveaxis|mT|T|t",
    "trig": r"sin|cos|a?r?c?tan",
    "log": r"log\w*|\w*log_softmax|softplus|cross_entropy",
    "conv": r"conv\w*|unfold|\w*_pool\w*|roll",
    "int": r"bitwise\w*|floor_divide|remainder|round",
}
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
# Worked examples and the tags they are for, the most particular first.
_EXAMPLES: tuple[tuple[str, frozenset[str]], ...] = (
    ("matmul_tiled", frozenset({"matmul", "conv"})),
    ("runtime_slots", frozenset({"control"})),
    ("running_sum", frozenset({"scan"})),
    ("row_argmax", frozenset({"select"})),
    ("lower_rows", frozenset({"mask"})),
    ("row_norm", frozenset({"norm_stats"})),
    ("row_softmax", frozenset({"exp", "norm", "reduction", "select"})),
    ("transpose_tiled", frozenset({"transpose", "scan", "conv", "gather"})),
    ("column_sum", frozenset({"reduction", "norm", "gather"})),
)
EXAMPLES_SHOWN = 4


def tags(spec: OpSpec) -> frozenset[str]:
    """Everything that tells which instructions an op may need."""
    tree = ast.parse((spec.folder / "reference.py").read_text())
    words = set(re.findall(r"\w+", f"{spec.op} {spec.summary} {spec.maths} {spec.notes}".lower()))
    words |= {part for word in words for part in word.split("_")}
    calls = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = {tag for tag, sign in _WORDS.items() if any(re.fullmatch(sign, word) for word in words)}
    found |= {tag for tag, sign in _CALLS.items() if any(re.fullmatch(sign, call) for call in calls)}
    products = any(isinstance(node, ast.MatMult) for node in ast.walk(tree))
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
    """Names of the instructions whose cards a prompt shows, the most common first."""
    wanted = list(_ALWAYS)
    for tag in [*sorted(have), target]:
        wanted += _CARDS.get(tag, ())
    return tuple(dict.fromkeys(wanted))


def examples(have: frozenset[str]) -> tuple[str, ...]:
    """Worked examples closest to the op; the plain elementwise one is always the last."""
    close = [name for name, signs in _EXAMPLES if signs & have]
    return (*close[: EXAMPLES_SHOWN - 1], "scale_shift")
