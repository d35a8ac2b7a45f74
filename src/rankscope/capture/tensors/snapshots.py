"""Saves the batch behind a lost loss, with the state of the random generators, so that it can be replayed."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LARGEST_BYTES: Final = 2 << 30
"""Of a batch; a larger one is not saved."""


def save(folder: Path, rank: int, step: int, batch: Mapping[str, Any], why: str) -> Path | None:
    """Write `rank1-step20.pt`; its path, None where it is there already or the batch is too large.

    Reads the states of the generators of torch, Python and (where it is loaded) numpy, and changes none. `torch.load`
    with `weights_only=True` reads the file.
    """
    import torch

    path = folder / f"rank{rank}-step{step}.pt"
    if path.exists() or sum(t.numel() * t.element_size() for t in batch.values()) > LARGEST_BYTES:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {
        "step": step,
        "rank": rank,
        "why": why,
        "batch": {key: tensor.detach().cpu() for key, tensor in batch.items()},
        "torch_rng": torch.random.get_rng_state(),
        "python_rng": random.getstate(),
    }
    if "numpy" in sys.modules:
        import numpy as np

        kind, keys, place, has_gauss, gauss = np.random.get_state()
        contents["numpy_rng"] = (kind, [int(key) for key in keys], place, has_gauss, gauss)
    unfinished = path.with_suffix(f".{os.getpid()}")
    # Not through `torch.save` itself: it is observed as a checkpoint of the program's.
    getattr(torch.save, "__wrapped__", torch.save)(contents, unfinished)
    unfinished.replace(path)
    return path


def ask_to_stop(path: Path, why: str) -> None:
    """Leave word that the run is to be ended; who has come first stands."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"{why}\n")
    except FileExistsError:
        pass
