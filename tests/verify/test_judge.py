"""What is asked wrongly of the judge is not the draft's failure."""

import pytest

from nkismith import verify
from nkismith.kernels import spec as specs


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"target": "trn9"}, "unknown target 'trn9': known are trn2, trn3"),
        ({"sdk": "9.9"}, "unknown Neuron SDK '9.9'"),
        ({"lnc": 3}, "lnc=3: a logical core groups 1 or 2 cores"),
    ],
)
def test_an_unknown_machine_is_an_error_and_no_verdict(machine, message):
    spec = specs.load("rope_3d")
    with pytest.raises(ValueError, match=message):
        verify.check("import nki\n", spec, **machine)
    with pytest.raises(ValueError, match=message):
        verify.profile("import nki\n", spec, spec.cases("smoke")[0], **machine)
