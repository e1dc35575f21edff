"""The worked examples are right: each runs in the simulator, at awkward sizes, and gives what PyTorch gives."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from nkismith.prompts import kinds
from nkismith.verify.lint import lint
from nkismith.verify.simulator.install import install, uninstall

FOLDER = Path(kinds.__file__).parent / "examples"


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


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
    module = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    loaded = importlib.util.module_from_spec(module)
    module.loader.exec_module(loaded)
    arguments, want = CASES[name](dtype)
    got = nki.simulate(getattr(loaded, name))(*arguments).float()
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 1e-2}[dtype]
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=tolerance, atol=tolerance * float(want.abs().max()))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_passes_the_lint(path):
    source = path.read_text()
    (entry,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    assert lint(source, entry=path.stem, params=tuple(a.arg for a in entry.args.args)) == ()


def test_every_kind_of_op_gets_an_example_and_every_example_is_used():
    shown = {name for tags in ({"matmul"}, {"control"}, {"exp"}, {"transpose"}, set()) for name in
             kinds.examples(frozenset(tags))}  # fmt: skip
    assert shown == {path.stem for path in FOLDER.glob("*.py")}
