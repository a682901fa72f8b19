"""Modules by name, file or folder, as source; nothing of them is imported or run."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from penstock.cli.errors import Refused
from penstock.cli.workflows.lint.rules import MUTATING

_MAX_BYTES, _MOST_FILES = 5_000_000, 10_000
_IGNORE = re.compile(r"#\s*penstock:\s*ignore(?:\[(?P<rules>[^\]]*)\])?")
_MARKS = frozenset(
    {"penstock.jobs.workflow", "penstock.jobs.workflows.coded.workflow_type.workflow"}
)
_JOB_MARKS = frozenset({"penstock.jobs.job", "penstock.jobs.registry.job"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
ANY_RULE = "*"


class Module:
    """One file.

    Attributes:
        path: as it is shown.
        tree: of its syntax.
        functions: of the module itself, by name, without those that are jobs or workflows.
        variables: of the module itself.
        changed: those of them that functions of the module change, or that it assigns twice.
        imports: dotted names, by the local name that they have in the module.
        ignored: names of rules, by the line on which they are ignored; `*` for all.

    Raises:
        Refused: it cannot be read, or is no Python.
    """

    def __init__(self, path: Path) -> None:
        self.path = _shown(path)
        text = _text(path)
        try:
            self.tree = ast.parse(text, str(path))
            self.ignored = dict(_ignored(text))
        except (SyntaxError, ValueError, RecursionError, tokenize.TokenError) as error:
            line = getattr(error, "lineno", None)
            place = f"{self.path}:{line}" if line else self.path
            raise Refused(f"{place}: no Python: {error}") from error
        self.imports = imports_of(self.tree.body)
        self.functions: dict[str, Function] = {}
        assigned: Counter[str] = Counter()
        for node in self.tree.body:
            if isinstance(node, Function):
                if not self._is_marked(node, _MARKS | _JOB_MARKS):
                    self.functions[node.name] = node
            else:
                assigned.update(assigned_names(node))
        self.variables = frozenset(assigned)
        twice = {name for name, times in assigned.items() if times > 1}
        self.changed = self.variables & {*twice, *changed_names(self.tree)}

    def workflows(self) -> Iterator[tuple[Function, bool]]:
        """Functions that are marked as workflows, and whether each is inside of another one."""
        for node in ast.walk(self.tree):
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, Function) and self._is_marked(inner, _MARKS):
                    yield inner, isinstance(node, Function)

    def _is_marked(self, function: Function, marks: frozenset[str]) -> bool:
        for decorator in function.decorator_list:
            mark = decorator.func if isinstance(decorator, ast.Call) else decorator
            if dotted(mark, self.imports) in marks:
                return True
        return False


def modules(target: str) -> tuple[list[Module], str]:
    """The modules that a text names, and the function among them; empty for all.

    Args:
        target: a `.py` file, a folder, ``package.module`` or ``package.module:function``.

    Raises:
        Refused: there is none, or one cannot be read.
    """
    path = Path(target)
    if path.is_dir() and not target.isidentifier():
        return [Module(file) for file in _files(path)], ""
    if path.suffix == ".py":
        if not path.is_file():
            raise Refused(f"found {target!r}, expected a file that exists")
        return [Module(path)], ""
    name, _, function = target.partition(":")
    origin = _origin(name)
    if origin is None and path.is_dir():
        return [Module(file) for file in _files(path)], ""
    if origin is None:
        raise Refused(
            f"found {target!r}, expected a module such as shop.orders, one with a function, "
            "shop.orders:fulfil, a .py file or a folder, or a definition in TOML or JSON"
        )
    return [Module(origin)], function


def _files(folder: Path) -> Sequence[Path]:
    files = sorted(
        file
        for file in folder.rglob("*.py")
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    if len(files) > _MOST_FILES:
        raise Refused(f"{folder}: {len(files):,} files, at most {_MOST_FILES:,} are read at once")
    return files


def _origin(name: str) -> Path | None:
    """The file of a module, found as an import would, without importing its packages."""
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    places: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise Refused(f"{path}: larger than the {_MAX_BYTES:,} bytes that are read")
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}") from error


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _ignored(text: str) -> Iterator[tuple[int, frozenset[str]]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (match := _IGNORE.search(token.string)):
            rules = match["rules"]
            names = [ANY_RULE] if rules is None else [one.strip() for one in rules.split(",")]
            yield token.start[0], frozenset(names)


# --- names ----------------------------------------------------------------------------------------
def imports_of(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Dotted names by the local names that statements import them under, those of blocks too."""
    names: dict[str, str] = {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    names[local] = alias.name if alias.asname else local
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, imports: dict[str, str]) -> str:
    """The dotted name of an expression, imported names spelled out; empty where it has none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([imports.get(node.id, node.id), *reversed(parts)])


def assigned_names(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds to values, without those of functions inside of it."""
    if isinstance(node, Function | ast.ClassDef | ast.Lambda):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for inner in ast.iter_child_nodes(node):
        yield from assigned_names(inner)


def changed_names(tree: ast.Module) -> Iterator[str]:
    """Names that are not a function's own, and that it binds or changes."""
    for function in ast.walk(tree):
        if not isinstance(function, Function):
            continue
        own = {name for node in function.body for name in assigned_names(node)}
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield from node.names
            elif (name := _changed_name(node)) and name not in own:
                yield name


def _changed_name(node: ast.AST) -> str:
    """The name of what ``names.append(...)`` or ``names[0] = ...`` changes; else empty."""
    held: ast.AST | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        held = node.func.value if node.func.attr in MUTATING else None
    elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        held = node.value
    return held.id if isinstance(held, ast.Name) else ""
