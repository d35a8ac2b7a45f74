"""The wheel: it builds from a copy of the repository, installs into an empty environment, and holds all files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rankscope

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    (file,) = folder.glob("*.whl")
    return file


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    root = Path(rankscope.__file__).parent
    ours = {
        str(path.relative_to(root.parent))
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if ".dist-info/" not in name}
        licences = [name for name in file.namelist() if name.endswith("LICENSE")]

    assert packed == ours
    assert {"rankscope/capture/site/sitecustomize.py", "rankscope/py.typed"} < packed
    assert [name for name in packed if name.endswith((".html", ".css", ".js"))]
    assert len(licences) == 1


@pytest.mark.slow
def test_installs_into_an_empty_environment_and_observes_from_there(wheel, tmp_path):
    """Without its dependencies (the network may be slow): what a training process needs is the standard library."""
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", wheel],
        check=True,
    )  # fmt: skip

    code = "import rankscope, sys; print(rankscope.__version__, 'torch' in sys.modules, 'numpy' in sys.modules)"
    out = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    version = subprocess.run(
        [environment / "bin" / "rankscope", "--version"], capture_output=True, text=True, cwd=tmp_path
    )

    assert out.split() == [rankscope.__version__, "False", "False"]
    assert (version.returncode, version.stdout) == (0, f"rankscope {rankscope.__version__}\n"), version.stderr
