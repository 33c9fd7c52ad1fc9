"""How the library hangs together: arrows one way, small modules, and notebooks without logic."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "mage"
LAYERS = ("operations", "implementations", ("gate", "timers", "profile"), "experiment", "notebook")
"""From what is computed to what runs a note: no module of a package imports from a layer after its own."""
KNOWS_EVIDENCE_ONLY = ("figures", "tables")
MEASURES_OR_RUNS = {"implementations", "gate", "timers", "profile", "experiment.measurement", "cuda", "notebook", "report"}
LONGER = {
    # module: reason for which it may be longer than 400 lines
}
LOGIC = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Match)


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


FILES = {module_name(file): file for file in PACKAGE.rglob("*.py") if "__pycache__" not in file.parts}


def imported(name: str) -> set[str]:
    """Modules of mage that ``name`` imports as it is itself imported: not within functions, not for type checkers."""
    found: set[str] = set()
    for node in _at_import(ast.parse(FILES[name].read_text("utf-8")).body):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("mage.") for alias in node.names if alias.name.startswith("mage.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mage":
            base = node.module.removeprefix("mage").removeprefix(".")
            whole = {f"{base}.{alias.name}".removeprefix(".") for alias in node.names}
            found |= {one if one in FILES else base for one in whole}
    for one in list(found):  # whoever imports a module imports its package too; from within, that is under way
        found |= {package for package in packages_of(one) if not name.startswith(f"{package}.")}
    return found & FILES.keys() - {name, ""}


def packages_of(name: str) -> list[str]:
    """The packages that a module lies in, its own name left out."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def lies_in(name: str, packages: set[str]) -> bool:
    """Whether a module is one of these, or in one of these packages."""
    return not packages.isdisjoint([name, *packages_of(name)])


def _at_import(body):
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for inner in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _at_import(getattr(node, inner, []) or [])


GRAPH = {name: imported(name) for name in FILES}


def reached(name: str) -> set[str]:
    """All modules that importing ``name`` imports."""
    found, waiting = set(), [name]
    while waiting:
        for one in GRAPH[waiting.pop()] - found:
            found.add(one)
            waiting.append(one)
    return found


def test_the_reader_of_imports_sees_them():
    assert {"evidence", "notes.params", "provenance"} <= GRAPH["experiment.together"]
    assert "notes" in GRAPH["experiment.together"], "importing a module imports its package"
    assert "experiment.measurement" not in GRAPH["experiment.at_hand"], "an import within a function is none at import time"
    assert "gate" not in GRAPH["tables.gate"], "an import for a type checker is none"


def test_no_module_imports_itself_by_a_detour():
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_packages_import_one_way():
    packages: dict[str, set[str]] = {}
    for name, found in GRAPH.items():
        top = name.partition(".")[0]
        packages.setdefault(top, set()).update({one.partition(".")[0] for one in found} - {top})
    try:
        TopologicalSorter(packages).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_arrows_go_one_way_through_the_layers():
    above: set[str] = set()
    for layer in reversed(LAYERS):
        names = {layer} if isinstance(layer, str) else set(layer)
        for name in (one for one in FILES if lies_in(one, names)):
            wrong = sorted(one for one in reached(name) if lies_in(one, above))
            assert not wrong, f"{name} reaches {wrong}"
        above |= names


@pytest.mark.parametrize("package", KNOWS_EVIDENCE_ONLY)
def test_tables_and_figures_know_evidence_only(package):
    for name in FILES:
        if lies_in(name, {package}):
            wrong = sorted(one for one in reached(name) if lies_in(one, MEASURES_OR_RUNS))
            assert not wrong, f"{name} reaches {wrong}"


def test_a_package_says_what_lies_where():
    for name, file in FILES.items():
        if file.name == "__init__.py":
            text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
            inside = {one.stem for one in file.parent.glob("*.py")} | {one.parent.name for one in file.parent.glob("*/__init__.py")}
            missing = sorted(one for one in inside - {"__init__"} if not re.search(rf"\b{one}\b", text))
            assert not missing, f"the docstring of mage/{name.replace('.', '/')}/__init__.py does not name {', '.join(missing)}"


def test_the_top_of_the_library_is_small():
    assert len([one for one in PACKAGE.iterdir() if one.name != "__pycache__"]) <= 30


def lines(file: Path) -> int:
    """Length of a module; of a package's ``__init__`` without its docstring, which lists the package."""
    text = file.read_text("utf-8")
    first = ast.parse(text).body[0] if file.name == "__init__.py" and text.strip() else None
    return len(text.splitlines()) - (first.end_lineno if isinstance(first, ast.Expr) else 0)


def test_no_module_is_longer_than_400_lines_without_a_reason():
    lengths = {name: lines(file) for name, file in FILES.items()}
    assert {name: length for name, length in lengths.items() if length > 400 and name not in LONGER} == {}
    assert all(lengths.get(name, 0) > 400 for name in LONGER), "a reason that is not needed any longer"


def test_kernels_is_never_imported_as_a_package():
    for file in [*FILES.values(), *(REPOSITORY / "tests").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not any(name.partition(".")[0] == "kernels" for name in names), file


@pytest.mark.parametrize("path", sorted((REPOSITORY / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_cells_are_short_and_hold_no_logic(path):
    import json

    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        text = "".join(cell["source"])
        assert len(text.splitlines()) <= 15, f"{cell['id']}: {len(text.splitlines())} lines"
        logic = [type(node).__name__ for node in ast.walk(ast.parse(text)) if isinstance(node, LOGIC)]
        assert not logic, f"{cell['id']}: {logic}"
        assert cell["execution_count"] is None and cell["outputs"] == [], f"{cell['id']} was committed with outputs"
