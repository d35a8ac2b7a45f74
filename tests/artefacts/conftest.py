"""Real files of other projects, where they are at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
PLACES = (os.environ.get("RANKSCOPE_DATA", ""), str(HERE.parents[3] / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """The path of a real file or folder; the test is skipped where the data are not at hand."""

    def find(name: str) -> Path:
        for place in PLACES:
            path = Path(place) / name
            if place and path.exists():
                return path
        pytest.skip(f"the real files are not at hand ($RANKSCOPE_DATA/{name})")

    return find
