"""A draft's own attribute names reach objects of its own classes, whichever way a foreign one comes to hand."""

import pytest

from nkismith.verify.simulator.errors import ForeignAttribute
from nkismith.verify.simulator.own_objects import OwnObjects, compile_draft

DOCUMENTED = frozenset({"shape", "append", "value"})
OWN = (
    "class Own:\n    _storage = None\n    def look(self):\n"
    "        return self._storage\n    def put(self):\n"
    "        self.shape = ()\n"
)


class Tensor:
    shape = (1,)
    _storage = "inside"


def run(source, **names):
    own = OwnObjects()
    namespace = {"__builtins__": {**__builtins__, **own.builtins()}, "__name__": "draft"}
    exec(compile_draft(source, "draft.py", DOCUMENTED), namespace)
    return namespace["go"](*names.values())


FOREIGN = {
    "a tensor": OWN + "def go(x):\n    return x._storage",
    "a change of a documented attribute": "def go(x):\n    x.shape = ()",
    "a deletion": "def go(x):\n    del x.shape",
    "a sum onto it": "def go(x):\n    x.shape += (1,)",
    "a loop's target": "def go(x):\n    for x.shape in ((),): pass",
    "a starred target": "def go(x):\n    a, *x.shape = 1, 2",
    "a tensor as self, through the class": OWN + "def go(x):\n    return Own.look(x)",
    "a change through the class": OWN + "def go(x):\n    return Own.put(x)",
    "a tensor as self, through an alias": OWN + "Alias = Own\ndef go(x):\n    return Alias.look(x)",
    "a tensor as self, through a table": OWN + "def go(x):\n    return [kind.look(x) for kind in (Own,)]",
    "a tensor as self, through a subclass": OWN + "class Other(Own): pass\ndef go(x):\n    return Other.look(x)",
    "a tensor as self, through a class variable": OWN + "    table = [look]\ndef go(x):\n    return Own.table[0](x)",
    "a tensor as self, through a decorator": "def keep(c):\n    return c.look\n@keep\n"
    + OWN
    + "def go(x):\n    return Own(x)",
    "a tensor as self, through a name that is bound twice": OWN
    + "A = Own\nclass Own: pass\ndef go(x):\n    return A.look(x)",
    "a tensor as self, through a class in a class": (
        "class Outer:\n    class In:\n        def look(self):\n            return self._storage\n"
        "def go(x):\n    return Outer.In.look(x)"
    ),
    "a class of others": "def go(x):\n    return int.mro()",
    "the frame of a generator": "def g():\n    yield\ndef go(x):\n    return g().gi_frame",
    "the code of a function": "def go(x):\n    return go.func_code",
    "the size of a cache": "import functools\n@functools.cache\ndef f(): pass\ndef go(x):\n    return f.cache_info()",
    "text that typing keeps": (
        "import typing\ndef go(x):\n    return typing.Union['1 + 1']._evaluate({}, {}, frozenset())"
    ),
    "a method of a metaclass": "import typing\nclass P(typing.Protocol): pass\ndef go(x):\n    return P.register(int)",
    "a module under a name that is bound elsewhere too": (
        "import math\ndef other(math):\n    return math._storage\ndef go(x):\n    return other(x)"
    ),
}


@pytest.mark.parametrize("source", FOREIGN.values(), ids=FOREIGN)
def test_an_attribute_of_the_drafts_naming_stays_off_foreign_objects(source):
    with pytest.raises(ForeignAttribute):
        run(source, x=Tensor())
    assert Tensor.shape == (1,)


OWNED = {
    "a field": (OWN + "def go():\n    return Own().look()", None),
    "a change": (
        OWN + ("def go():\n    o = Own()\n    o.put()\n    o.n = 3\n    o.n += 1\n    return o.shape, o.n"),
        ((), 4),
    ),
    "a method of a base class": (
        OWN
        + ("class B(Own):\n    def look(self):\n        return super().look(), 1\ndef go():\n    return B().look()"),
        (None, 1),
    ),
    "a class variable": ("class C:\n    rows = 3\ndef go():\n    return C.rows", 3),
    "a member": ("import enum\nclass E(enum.Enum):\n    TWO = 2\ndef go():\n    return E.TWO.value", 2),
    "a named tuple": ("import typing\nclass P(typing.NamedTuple):\n    rows: int\ndef go():\n    return P(4).rows", 4),
    "a dataclass": (
        ("import dataclasses\n@dataclasses.dataclass\nclass P:\n    rows: int = 5\ndef go():\n    return P().rows"),
        5,
    ),
    "a module": ("import math\ndef go():\n    return math.floor(2.5)", 2),
    "a class pattern": (
        ("class P:\n    n = 1\ndef go():\n    match P():\n        case P(n=1):\n            return 'one'"),
        "one",
    ),
    "a value pattern": (
        ("class P:\n    ONE = 1\ndef go():\n    match 1:\n        case P.ONE:\n            return 'one'"),
        "one",
    ),
    "a property": ("class P:\n    @property\n    def n(self):\n        return 2\ndef go():\n    return P().n", 2),
    "a length": ("class P:\n    def __len__(self):\n        return 2\ndef go():\n    return len(P())", 2),
}


@pytest.mark.parametrize(("source", "result"), OWNED.values(), ids=OWNED)
def test_own_objects_are_used_as_ever(source, result):
    assert run(source) == result


@pytest.mark.parametrize(
    "source",
    [
        (
            "class P:\n    @property\n    def n(self):\n"
            "        return (1).missing\ndef go():\n    match P():\n"
            "        case P(n=1): pass"
        ),
        "class P:\n    n = property(lambda self: self.missing)\ndef go():\n    match P():\n        case P(n=1): pass",
        "class P:\n    def __iter__(self):\n        return iter(())\n    def __len__(self):\n        return len(1)\n"
        "def go():\n    list(P())",
    ],
    ids=["property in a pattern", "property of a lambda", "length asked for by list"],
)
def test_python_drops_no_exception_of_a_draft(source):
    with pytest.raises((RuntimeError, ForeignAttribute)):
        run(source)


def test_lines_stay_what_they_were():
    with pytest.raises(ForeignAttribute) as caught:
        run("def go(x):\n\n    return (\n        x\n        ._storage\n    )", x=Tensor())
    assert caught.traceback[2].lineno + 1 in (4, 5)


def test_a_refusal_is_no_attribute_error():
    assert not issubclass(ForeignAttribute, AttributeError | TypeError)
