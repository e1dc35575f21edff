"""State of a draft's module is found wherever it hides, and what is the same stays the same."""

import pytest

from nkismith.verify.simulator.draft_state import digests

STATE = {
    "a number": ("N = 0\ndef step():\n    global N\n    N += 1",),
    "a list": ("L = []\ndef step():\n    L.append(1)",),
    "a list under another name": ("L = [[0]]\ndef inner(l):\n    l[0] += 1\ndef step():\n    inner(L[0])",),
    "a dict in a tuple": ("T = ({},)\ndef step():\n    T[0]['a'] = 1",),
    "a set": ("S = set()\ndef step():\n    S.add(1)",),
    "a closure": (
        "def make():\n    n = 0\n    def step():\n        nonlocal n\n        n += 1\n    return step\nstep = make()",
    ),
    "a default": ("def step(seen=[]):\n    seen.append(1)",),
    "a function's attribute": ("def step():\n    step.n = 1",),
    "a class variable": ("class C:\n    n = 0\ndef step():\n    C.n += 1",),
    "an object": ("class C:\n    n = 0\nO = C()\ndef step():\n    O.n = O.n + 1",),
    "an object with slots": ("class C:\n    __slots__ = ('n',)\nO = C()\ndef step():\n    O.n = 1",),
    "an object behind a method": (
        "class C:\n    def __init__(self):\n        self.n = 0\n    def go(self):\n        self.n += 1\nstep = C().go",
    ),
    "an object in a partial": ("import functools\ndef add(l):\n    l.append(1)\nstep = functools.partial(add, [])",),
    "a list iterator": ("I = iter([1, 2, 3])\ndef step():\n    next(I)",),
    "a range iterator": ("I = iter(range(9))\ndef step():\n    next(I)",),
    "an enumeration of a zip": ("I = enumerate(zip('ab', 'cd'))\ndef step():\n    next(I)",),
    "a map": ("I = map(abs, [1, 2])\ndef step():\n    next(I)",),
    "a generator": ("def g():\n    yield 1\n    yield 2\nG = g()\ndef step():\n    next(G)",),
    "a cached list": (
        "import functools\n@functools.cache\ndef box():\n    return [0]\ndef step():\n    box()[0] += 1",
    ),
    "a list in a bounded cache": (
        "import functools\n@functools.lru_cache(8)\ndef box(n):\n    return [n]\ndef step():\n    box(3)[0] += 1",
    ),
    "a wrapped function": (
        "import functools\ndef deco(f):\n    n = [0]\n    @functools.wraps(f)\n    def g():\n        n[0] += 1\n"
        "    return g\n@deco\ndef step():\n    pass",
    ),
}
STEADY = {
    "constants": "A, B = 1, (2, [3])\nD = {'a': {1, 2}}\nM = float('nan')\ndef step():\n    return A, B",
    "a cached number": "import functools\n@functools.cache\ndef f(n):\n    return n, (n,)\ndef step():\n    f(3), f(4)",
    "a number in a bounded cache": (
        "import functools\n@functools.lru_cache(2)\ndef f(n):\n    return n\ndef step():\n    f(3), f(4), f(5)"
    ),
    "an enumeration": "import enum\nclass E(enum.Flag):\n    A = 1\n    B = 2\ndef step():\n    return E.A | E.B",
    "a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n    n: int = 0\nQ = P(1)\ndef step():\n    P(2).n = 3"
    ),
    "a closure that is called": "def make(n):\n    return lambda: n\nf = make(1)\ndef step():\n    f()",
    "what refers to itself": "L = []\nL.append(L)\ndef step():\n    return step, L",
    "an empty cell": "def make():\n    def f():\n        return n\n    return f\n    n = 1\nf = make()\nstep = int",
    "a generic class": (
        "import typing\nT = typing.TypeVar('T')\nclass G(typing.Generic[T]):\n    pass\nclass P(typing.Protocol):\n"
        "    def f(self): ...\ndef step():\n    return G[int]()"
    ),
    "an unused generator": "def g():\n    yield 1\nG = g()\ndef step():\n    list(g())",
}


def changed(source):
    namespace = {"__name__": "draft"}
    exec(source, namespace)
    before = digests(namespace, "draft")
    namespace["step"]()
    after = digests(namespace, "draft")
    return [name for name in after if before.get(name) != after[name]]


@pytest.mark.parametrize("source", [s for (s,) in STATE.values()], ids=STATE)
def test_state_is_found(source):
    assert changed(source)


@pytest.mark.parametrize("source", STEADY.values(), ids=STEADY)
def test_what_builds_do_not_change_is_not_state(source):
    assert changed(source) == []


def test_the_digest_says_which_name_changed():
    assert changed("A, B = [1], [2]\ndef step():\n    B.append(3)") == ["B"]


def test_ids_that_are_used_again_do_not_confuse_it():
    source = "class C:\n    pass\nO = [C() for _ in range(50)]\ndef step():\n    pass"
    assert changed(source) == []
