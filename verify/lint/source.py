"""A draft as the rules see it: text, tree, what names mean. What cannot be read this far is a `parse` finding."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from nkismith.verify.lint.scopes import Scopes

# Far beyond what anyone would review, and well within what Python's own parser takes without harm.
MAX_CHARACTERS = 100_000
MAX_LINE = 10_000
MAX_DEPTH = 100  # of the syntax tree
# Shown as nothing or out of order by editors (Unicode Cf and line separators), so that a reader and Python see
# different sources; and control characters other than tab and newline.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263, looked for in the first two lines


class Unreadable(Exception):
    """The source is not Python that can be judged: `line`, what was seen, how to fix."""

    def __init__(self, line: int, message: str, fix: str) -> None:
        self.line, self.message, self.fix = line, message, fix
        super().__init__(message)


@dataclass(frozen=True, eq=False)
class Source:
    """One parsed draft and what it is asked to be."""

    text: str
    tree: ast.Module
    entry: str
    params: tuple[str, ...]
    sdk: tuple[int, int]
    max_literals: int

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes, in no particular order."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node above each node."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def scopes(self) -> Scopes:
        """What names mean."""
        return Scopes(self.tree)

    def each(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """All nodes of these kinds."""
        return (node for node in self.nodes if isinstance(node, kinds))

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, inside out."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    @cached_property
    def _paths(self) -> dict[ast.AST, str | None]:
        return {}

    def path(self, node: ast.AST, depth: int = 0) -> str | None:
        """The dotted path of an expression that leads to an import ("nki.isa.dma_copy"), through plain aliases too."""
        if node not in self._paths and depth < MAX_DEPTH:
            self._paths[node] = None  # the answer for an alias of itself
            self._paths[node] = self._path(node, depth + 1)
        return self._paths.get(node)

    def _path(self, node: ast.AST, depth: int) -> str | None:
        if isinstance(node, ast.Attribute):
            base = self.path(node.value, depth)
            return base and f"{base}.{node.attr}"
        found = self.scopes.find(node) if isinstance(node, ast.Name) else None
        if found is None:
            return None
        binding = found[1]
        return binding.imported or (self.path(binding.value, depth) if binding.value else None)


def read(source: str | bytes) -> tuple[str, ast.Module]:
    """Text and tree of a draft. Raises Unreadable."""
    text = _decoded(source)
    if len(text) > MAX_CHARACTERS:
        raise Unreadable(1, f"the source has {len(text):,} characters, at most {MAX_CHARACTERS:,}", "split the op")
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if hidden := _HIDDEN.search(line.removesuffix("\r")):
            raise Unreadable(number, f"hidden character U+{ord(hidden[0]):04X}", "delete it, or write it as an escape")
        if len(line) > MAX_LINE:
            raise Unreadable(number, f"a line of {len(line):,} characters, at most {MAX_LINE:,}", "break the line")
        coding = _CODING.match(line) if number <= 2 else None
        if coding and coding[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            raise Unreadable(
                number,
                f"coding line for {coding[1]}: the same bytes would be another program when run as a file",
                "delete the coding line; sources are UTF-8",
            )
    return text, _tree(text)


def _decoded(source: str | bytes) -> str:
    if isinstance(source, bytes):
        try:
            return source.decode("utf-8")
        except UnicodeDecodeError as error:
            line = source[: error.start].count(b"\n") + 1
            raise Unreadable(line, f"byte 0x{source[error.start]:02X} is not UTF-8", "save the file as UTF-8") from None
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as error:
        line, code = source[: error.start].count("\n") + 1, ord(source[error.start])
        # Reading with errors="surrogateescape" leaves byte 0xNN as U+DCNN.
        what = f"byte 0x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"the lone surrogate U+{code:04X}"
        raise Unreadable(line, f"{what} is not UTF-8", "save the file as UTF-8") from None
    return source


def _tree(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape is no concern of the caller
            tree = ast.parse(text)
            compile(text, "draft", "exec", dont_inherit=True)  # finds what parsing does not: `return` outside a def
    except SyntaxError as error:
        raise Unreadable(error.lineno or 1, f"syntax error: {error.msg}", "write valid Python 3.11") from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        raise Unreadable(1, f"cannot be parsed: {error or type(error).__name__}", "nest less deeply") from None
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise Unreadable(
        min(getattr(n, "lineno", 1) for n in level), f"nested deeper than {MAX_DEPTH} levels", "use loops or helpers"
    )
