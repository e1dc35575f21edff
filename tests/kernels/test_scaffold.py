import pytest
import torch

from nkismith.kernels import scaffold, spec
from nkismith.kernels.spec import SpecError
from nkismith.verify import reference
from nkismith.verify.spec_quality import weaknesses


def test_a_new_op_loads_runs_and_is_strong_enough_to_judge(tmp_path):
    made = spec.load(scaffold.new("my_op", tmp_path))
    assert made.op == "my_op" and weaknesses(made, seed=1) == ()
    x, scale = torch.ones(3, 4), torch.tensor([1.0, 2.0, 3.0])
    (y,) = reference.load(made.folder / "reference.py", "my_op")(x, scale)
    assert y.tolist() == [[1.0] * 4, [2.0] * 4, [3.0] * 4]


@pytest.mark.parametrize("name", ["2op", "my-op", "class", "Op", ""])
def test_a_name_that_cannot_be_a_function_is_refused_and_nothing_is_written(tmp_path, name):
    with pytest.raises(SpecError):
        scaffold.new(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_left_alone(tmp_path):
    scaffold.new("my_op", tmp_path)
    with pytest.raises(SpecError, match="exists already"):
        scaffold.new("my_op", tmp_path)
