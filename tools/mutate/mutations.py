"""Small faults for a source file: each replaces one expression or statement.

Left out are annotations, texts, log events and checks of our own invariants (`raise
AssertionError`), which tests do not and should not notice.
"""

import ast
import copy
import dataclasses
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_SWAPPED_CALLS: Final = {"min": "max", "max": "min"}
_LOGGERS: Final = {"log", "_log", "warnings", "audit"}


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One fault: `source[start:end]` of the file becomes `new`."""

    path: Path
    line: int
    last_line: int
    operator: str
    start: int
    end: int
    new: str

    def apply(self, source: str) -> str:
        """Return the source with the fault."""
        return source[: self.start] + self.new + source[self.end :]

    def diff(self, source: str) -> str:
        """Return the lines that change, as a diff without context."""
        lines = difflib.unified_diff(
            source.splitlines(), self.apply(source).splitlines(), n=0, lineterm=""
        )
        return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))

    def identity(self, source: str) -> str:
        """Return the file, the lines and how they change: the same if the lines move."""
        begin = source.rfind("\n", 0, self.start) + 1
        before, after = source[begin : self.start].lstrip(), source[self.end :].partition("\n")[0]
        old = source[self.start : self.end]
        return "\0".join((str(self.path), before, old, after, self.new))


def mutations(path: Path, source: str) -> list[Mutation]:
    """Return all faults for a file, in the order of the source."""
    found = _Finder(path, source)
    found.visit(ast.parse(source))
    return sorted(found.mutations, key=lambda each: (each.start, each.end, each.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line.encode()))
        self._bytes = source.encode()
        self._function = ""
        self.mutations: list[Mutation] = []

    # --- Places

    def _offset(self, line: int, column: int) -> int:
        """Return the position in characters; `ast` counts columns in bytes."""
        return len(self._bytes[: self._starts[line - 1] + column].decode())

    def _add(self, node: ast.expr | ast.stmt, operator: str, new: str) -> None:
        end_line, end_column = node.end_lineno, node.end_col_offset
        if end_line is None or end_column is None:
            raise AssertionError("a node without its end")
        start = self._offset(node.lineno, node.col_offset)
        end = self._offset(end_line, end_column)
        mutation = Mutation(self._path, node.lineno, end_line, operator, start, end, new)
        self.mutations.append(mutation)

    def _replace(self, node: ast.expr, operator: str, new: ast.expr) -> None:
        self._add(node, operator, f"({ast.unparse(new)})")

    # --- What is left out

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._function = self._function, node.name
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._function = outer

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = {ast.unparse(base) for base in node.bases}
        if not bases & {"Port", "Protocol"}:
            for statement in node.body:
                self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self.visit(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)
        last = node.body[-1]
        guards = isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)
        if len(node.body) == 1 and guards and not _is_invariant(last):
            self._add(last, "removed guard", "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave errors: their texts and fields are in the error catalogue."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions: they are for type checkers."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Name) and node.value.id[:1].isupper():
            return  # a type
        self.generic_visit(node)

    # --- Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(call, ast.Call):
            return
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in _LOGGERS:
            return
        self._add(node, "removed call", "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        if "__all__" in names or "__slots__" in names:
            return
        if self._function not in {"", "__init__"} and all(
            isinstance(each, ast.Attribute) for each in node.targets
        ):
            self._add(node, "removed assignment", "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None:
            new = copy.copy(node)
            new.op = other()
            self._add(node, "arithmetic", ast.unparse(new))
        self.visit(node.value)

    # --- Expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            new = copy.copy(node)
            new.ops = list(node.ops)
            new.ops[number] = _COMPARISONS[type(operator)]()
            self._replace(node, "comparison", new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        new = copy.copy(node)
        new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(node, "and, or", new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, "removed not", node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _ARITHMETIC.get(type(node.op))
        texts = (node.left, node.right)
        if other is not None and not any(_is_text(each) for each in texts):
            new = copy.copy(node)
            new.op = other()
            self._replace(node, "arithmetic", new)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _SWAPPED_CALLS:
            self._add(node.func, "min, max", _SWAPPED_CALLS[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "True, False", str(not node.value))
        elif type(node.value) is int:
            self._add(node, "constant", str(node.value + 1))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_invariant(node: ast.stmt) -> bool:
    """Return whether a statement reports a fault of our own that no input can cause."""
    return isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node)


def all_mutations(root: Path, folders: tuple[str, ...]) -> Iterator[Mutation]:
    """Yield the faults for all files of some packages; paths are relative to `root`."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield from mutations(path.relative_to(root), path.read_text())
