"""Who may import whom. A floor imports the floors below it, never one above or beside; torch has its own few places."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankscope

ROOT = Path(rankscope.__file__).parent

# Bottom first; what stands on one line is side by side and may not import each other, but for BESIDE.
FLOORS = [
    ["base"],
    ["records"],
    ["wire", "store"],
    ["capture", "recorder", "collector", "analysis", "artefacts"],
    ["report", "testing"],
    ["views"],
    ["cli"],
]
FLOOR = {name: height for height, row in enumerate(FLOORS) for name in row}

# Narrower than the floors: what runs in the training process, and what only shows.
NEVER = {
    "capture": {"store", "wire"},  # the training process opens no database and no socket
    "recorder": {"store"},  # it hands frames over and does not know who keeps them
    "analysis": {"wire"},  # analysis reads the store, never frames
    "views": {"analysis", "capture", "collector", "recorder", "records", "store", "wire"},  # a view shows a report
}

# torch is the user's own and already loaded where these run; they import it inside functions.
TORCH = (
    "capture/sources/",
    "capture/tensors/",
    "capture/api.py",
    "capture/compiled_frames.py",
    "capture/deep.py",
    "capture/describe.py",
)

FILES = sorted(ROOT.glob("*/**/*.py"))
SCRIPTS = ROOT / "cli" / "demo_programs"  # programs of a user, shipped to be run, never imported


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def breaches(path: Path) -> Iterator[str]:
    here = path.relative_to(ROOT).parts[0]
    for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
        parts = name.split(".")
        if parts[0] != "rankscope" or len(parts) < 2 or parts[1] not in FLOOR or parts[1] == here:
            continue
        if FLOOR[parts[1]] >= FLOOR[here] or parts[1] in NEVER.get(here, ()):
            yield f"{path.relative_to(ROOT)} imports {name}"


def torch_breaches(path: Path) -> Iterator[str]:
    inside = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    in_functions = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(
            name.split(".")[0] == "torch" for name in imports(ast.Module([node], []))
        ):
            if not inside.startswith(TORCH):
                yield f"{inside}:{node.lineno} imports torch"
            elif id(node) not in in_functions and not _for_types_only(tree, node):
                yield f"{inside}:{node.lineno} imports torch outside of a function"


def _for_types_only(tree: ast.AST, wanted: ast.AST) -> bool:
    return any(
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and wanted in ast.walk(node)
        for node in ast.walk(tree)
    )


def test_every_folder_has_a_floor():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and any(path.glob("**/*.py"))}

    assert folders - {"integrations"} <= set(FLOOR)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_downwards(path):
    if path.parent == SCRIPTS:
        assert "rankscope" not in path.read_text(encoding="utf-8")
        return

    assert [*breaches(path), *torch_breaches(path)] == []


def test_importing_us_is_light():
    code = (
        "import sys, time; t = time.perf_counter(); import rankscope; ms = (time.perf_counter() - t) * 1e3;"
        "heavy = ('torch', 'numpy', 'msgspec', 'pyarrow', 'rich', 'rankscope.store', 'rankscope.analysis');"
        "print([m for m in heavy if m in sys.modules], ms)"
    )
    outs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.rpartition(" ")
        for _ in range(5)
    ]

    assert {out[0] for out in outs} == {"[]"}
    assert min(float(out[2]) for out in outs) < 50


def test_the_command_line_starts_without_numpy_and_torch():
    code = (
        "import sys; from rankscope.cli.main import make_parser; make_parser();"
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'chdb') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert out.strip() == "[]"
