"""The worked examples are right: each runs in the simulator, at awkward sizes, and gives what PyTorch gives."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from nkismith import verify
from nkismith.prompts import kinds
from nkismith.verify.lint import lint
from nkismith.verify.simulator.install import install, uninstall
from tests.prompts import specs

FOLDER = Path(kinds.__file__).parent / "examples"


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def load(name):
    """The kernel of an example; needs `nki` to be installed."""
    found = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, name)


def slots(pages):
    ids, count = torch.tensor([4, 0, 2, 1], dtype=torch.int32), torch.tensor([3], dtype=torch.int32)
    return (pages, ids, count), pages[[4, 0, 2]].float().sum(0)


CASES = {
    "scale_shift": lambda dtype: (
        args := (numbers(131, 2055).to(dtype), numbers(2055, seed=1), numbers(2055, seed=2)),
        args[0].float() * args[1] + args[2],
    ),
    "row_softmax": lambda dtype: (args := (numbers(131, 515).to(dtype),), torch.softmax(args[0].float(), -1)),
    "matmul_tiled": lambda dtype: (
        args := (numbers(131, 200).to(dtype), numbers(200, 600, seed=1).to(dtype)),
        args[0].float() @ args[1].float(),
    ),
    "transpose_tiled": lambda dtype: (args := (numbers(131, 200).to(dtype),), args[0].float().T),
    "row_norm": lambda dtype: (
        args := (numbers(131, 1100).to(dtype), numbers(1100, seed=1)),
        torch.nn.functional.layer_norm(args[0].float(), (1100,), args[1]),
    ),
    "running_sum": lambda dtype: (args := (numbers(131, 2055).to(dtype),), args[0].double().cumsum(-1).float()),
    "row_argmax": lambda dtype: (args := (numbers(131, 300).to(dtype),), args[0].float().max(-1, keepdim=True)),
    "lower_rows": lambda dtype: (
        args := (numbers(131, 200).to(dtype),),
        args[0].float().where(torch.ones(131, 200, dtype=torch.bool).tril(), -30000.0),
    ),
    "column_sum": lambda dtype: (args := (numbers(131, 600).to(dtype),), args[0].float().sum(0, keepdim=True)),
    "runtime_slots": lambda dtype: slots(numbers(5, 131, 40).to(dtype)),
}


@pytest.fixture(scope="module")
def nki():
    install(sdk="2.33", target="trn2", lnc=1)
    import nki

    yield nki
    uninstall()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_an_example_computes_what_it_says(name, dtype, nki):
    arguments, want = CASES[name](dtype)
    got = nki.simulate(load(name))(*arguments)
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 1e-2}[dtype]
    for one, wanted in zip(got, want, strict=True) if isinstance(got, tuple) else ((got, want),):
        scale = tolerance * float(wanted.abs().max())
        np.testing.assert_allclose(one.float().numpy(), wanted.float().numpy(), rtol=tolerance, atol=scale)


def test_the_argmax_example_pads_rows_shorter_than_eight(nki):
    x = numbers(5, 3)
    value, index = nki.simulate(load("row_argmax"))(x)
    assert torch.equal(index[:, 0].long(), x.argmax(-1)) and torch.equal(value[:, 0], x.amax(-1))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_passes_the_lint(path):
    source = path.read_text()
    (entry,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    assert lint(source, entry=path.stem, params=tuple(a.arg for a in entry.args.args)) == ()


def test_every_kind_of_op_gets_an_example_and_every_example_is_used():
    alone = [{tag} for tag in kinds._CALLS] + [{"matmul"}, {"control"}, set()]
    shown = {name for tags in alone for name in kinds.examples(frozenset(tags))}
    assert shown == {path.stem for path in FOLDER.glob("*.py")}


@pytest.mark.acceptance
@pytest.mark.parametrize("name", sorted(CASES))
def test_an_example_passes_every_stage_of_the_judge(name, tmp_path):
    verdict = verify.check(FOLDER / f"{name}.py", specs.write(name, tmp_path))
    assert verdict.accepted, f"{verdict.stage} {verdict.reason} line {verdict.line}: {verdict.message} ({verdict.case})"
