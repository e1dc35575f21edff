"""State of a draft's module is found wherever it hides, and what is the same stays the same."""

import pytest

from nkismith.verify.simulator.draft_state import DraftState

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
    "a list in a cached tuple": (
        "import functools\n@functools.cache\ndef box():\n    return ([0],)\ndef step():\n    box()[0][0] += 1",
    ),
    "a list behind a bound builtin": ("step = [1, 2, 3].pop",),
    "a dict behind a bound builtin": ("seen = {}.setdefault\ndef step():\n    seen('a', 1)",),
    "text that is walked through": ("I = iter('\u00e9\u00e8')\ndef step():\n    next(I)",),
    "a dict that is walked backwards": ("I = reversed({1: 2, 3: 4})\ndef step():\n    next(I)",),
    "a sequence of old": (
        "class S:\n    def __getitem__(self, i):\n        return i\nI = iter(S())\ndef step():\n    next(I)",
    ),
    "a generator that stays on its line": (
        "def g():\n    for _ in (0,) * 9:\n        yield 1\nG = g()\nnext(G)\ndef step():\n    next(G)",
    ),
    "a function that names another module": (
        "import functools, math\ndef make():\n    n = [0]\n    @functools.wraps(math.sqrt)\n    def step():\n"
        "        n[0] += 1\n    return step\nstep = make()",
    ),
    "an enumeration that names another module": (
        "import enum\nE = enum.Enum('E', {'A': [0]}, module='elsewhere')\ndef step():\n    E.A.value[0] += 1",
    ),
    "a combination of flags": (
        "import enum\nclass F(enum.Flag):\n    A = 1\n    B = 2\ndef step():\n    (F.A | F.B).n = 1",
    ),
    "a property that only writes": (
        "def make():\n    n = [0]\n    def put(self, value):\n        n[0] += 1\n    return property(None, put)\n"
        "class C:\n    x = make()\ndef step():\n    C().x = 1",
    ),
    "a list behind a key": ("import functools\nK = functools.cmp_to_key(min)([0])\ndef step():\n    K.obj.append(1)",),
    "a list in a slice": ("S = slice([0], None)\ndef step():\n    S.start.append(1)",),
    "which function of others": ("L = [abs]\ndef step():\n    L[0] = len",),
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
    "a cached member of an enumeration": (
        "import enum, functools\nclass E(enum.Enum):\n    A = 1\n@functools.cache\ndef f():\n    return E.A, (len,)\n"
        "def step():\n    f()"
    ),
    "looking at a function": "import inspect\ndef f(a, b=1):\n    pass\ndef step():\n    inspect.signature(f)",
    "looking at an object": "class C:\n    n = 1\nO = C()\nO.m = 2\ndef step():\n    vars(O), str(O)",
    "asking for a protocol": (
        "import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    def f(self): ...\n"
        "def step():\n    isinstance(3, P)"
    ),
    "an unused generator": "def g():\n    yield 1\nG = g()\ndef step():\n    list(g())",
}


def changed(source):
    namespace = {"__name__": "draft"}
    state = DraftState(namespace)
    exec(source, namespace)
    before = state.digests(namespace)
    namespace["step"]()
    after = state.digests(namespace)
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
