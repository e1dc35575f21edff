"""NKIObject: fields, defaults, @dataclass on top, classes with an __init__ of their own."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import ClassVar

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from nki.language import NKIObject

from tests.verify.simulator.one import floats


class Plain(NKIObject):
    """Annotated fields, a default, a class variable and an attribute without annotation."""

    rows: int
    columns: int = 4
    shared: ClassVar[int] = 7
    loose = "free"

    def size(self) -> int:
        """Elements."""
        return self.rows * self.columns


@dataclass
class Decorated(NKIObject):
    """With @dataclass, and fields that only dataclasses have."""

    rows: int
    names: list = field(default_factory=list)
    total: int = field(default=0)
    late: int = None

    def __post_init__(self):
        self.late = self.rows + self.total


@dataclass(frozen=True)
class Fixed(NKIObject):
    """Frozen."""

    rows: int
    columns: int = 2


class Derived(Plain):
    """More fields after those of the base."""

    depth: int = 3


class Written(NKIObject):
    """An __init__ of its author's."""

    def __init__(self, rows, *extra):
        self.both = (rows, extra)


class FromWritten(Written):
    """Inherits it."""

    unused: int = 0


class TestFields:
    def test_by_position_and_by_name(self):
        assert (Plain(3).rows, Plain(3).columns, Plain(3).size()) == (3, 4, 12)
        assert Plain(columns=1, rows=2).size() == 2
        assert Plain(3, 5).size() == 15

    def test_missing_ones_are_none(self):
        assert Plain().rows is None

    def test_class_variables_are_no_fields(self):
        with pytest.raises(TypeError):
            Plain(1, 2, 3)
        assert Plain.shared == 7

    def test_attributes_without_annotation_are_keywords(self):
        assert Plain(1, loose="taken").loose == "taken"
        assert Plain(1).loose == "free"

    @pytest.mark.parametrize("arguments", [((1, 2, 3), {}), ((1,), {"rows": 2}), ((), {"other": 1})])
    def test_what_does_not_fit_is_refused(self, arguments):
        args, kwargs = arguments
        with pytest.raises(TypeError, match="Plain"):
            Plain(*args, **kwargs)

    def test_of_derived_classes_follow(self):
        found = Derived(1, 2, 5)
        assert (found.rows, found.columns, found.depth) == (1, 2, 5)

    def test_are_shown(self):
        assert repr(Fixed(1)) == "Fixed(rows=1, columns=2)"
        assert "rows=3" in repr(Plain(3))


class TestDataclasses:
    def test_factories_and_what_follows_the_constructor(self):
        a, b = Decorated(2, total=3), Decorated(rows=1)
        a.names.append("x")
        assert (a.late, b.late, b.names) == (5, 1, [])

    def test_frozen(self):
        fixed = Fixed(3)
        with pytest.raises(FrozenInstanceError):
            fixed.rows = 4
        assert replace(fixed, rows=4) == Fixed(4, 2)
        assert [f.name for f in fields(fixed)] == ["rows", "columns"]

    def test_unequal_ones(self):
        assert Fixed(1) != Fixed(2)


class TestConstructors:
    def test_of_the_author_stay(self):
        assert Written(1, 2, 3).both == (1, (2, 3))
        assert FromWritten(1, 2).both == (1, (2,))


def test_objects_carry_tiles_through_functions():
    class State(NKIObject):
        """A running sum and how many were added."""

        total: nl.NkiTensor
        count: int = 0

        def add(self, tile):
            """Add a tile."""
            nisa.tensor_tensor(self.total, self.total, tile, nl.add)
            self.count += 1

    @nki.jit
    def kernel(x):
        state = State(nl.zeros(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf))
        for i in range(x.shape[0]):
            state.add(nl.load(x[i]))
        assert state.count == x.shape[0]
        out = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, state.total)
        return out

    x = floats(3, 8, 16)
    assert np.allclose(nki.simulate(kernel)(x), x.sum(0), atol=1e-6)
