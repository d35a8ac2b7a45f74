"""Where the targets of a loss stand in the tokens that the model was given: at the same place, one further, two."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor

LAGS: Final = (-1, 0, 1, 2, 3)
ROWS, LENGTH = 8, 512
"""Of tokens that are kept."""
FEWEST: Final = 16
"""Targets that are compared; fewer agree by chance."""
SHORTEST: Final = 6
"""Tokens of a row, of which five lags can be told apart."""
CUT: Final = 3
"""Places that a program may have cut off the end of its rows."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A copy of the first rows of the tokens, and how many there were."""

    rows: int
    length: int
    ids: Tensor


@dataclass(frozen=True, slots=True)
class Lags:
    compared: int
    shares: tuple[float, ...]
    """Of the targets equal to the token at each of `LAGS`."""


NOTHING = Lags(0, (0.0,) * len(LAGS))


def tokens_of(ids: Any) -> Tokens | None:
    """The tokens among a tensor of integers [rows, length]; None where it is none."""
    import torch

    if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32) or ids.shape[1] < SHORTEST:
        return None
    return Tokens(ids.shape[0], ids.shape[1], ids.detach()[:ROWS, :LENGTH].to(torch.int64, copy=True))


def lags_of(target: Tensor, ignored: int, given: Iterable[Tokens]) -> Lags:
    """Where targets stand in the tokens that fit them best."""
    found = [lags for tokens in given if (lags := _against(target.detach(), ignored, tokens)) is not None]
    return max(found, key=lambda lags: max(lags.shares), default=NOTHING)


def _against(target: Tensor, ignored: int, tokens: Tokens) -> Lags | None:
    length = target.shape[1] if target.dim() == 2 else target.numel() // max(1, tokens.rows)
    if target.dim() > 2 or length * tokens.rows != target.numel() or not tokens.length - CUT <= length <= tokens.length:
        return None
    rows = target.reshape(tokens.rows, length)[: tokens.ids.shape[0], : tokens.ids.shape[1]]
    counted = (rows != ignored) & (rows >= 0)
    shares, compared = [], math.inf
    for lag in LAGS:
        first = max(0, -lag)
        n = min(rows.shape[1], tokens.ids.shape[1] - lag) - first
        mine, mask = rows[:, first : first + n], counted[:, first : first + n]
        theirs = tokens.ids[:, first + lag : first + lag + n]
        many = int(mask.sum())
        compared = min(compared, many)
        shares.append(float(((mine == theirs) & mask).sum()) / many if many else 0.0)
    return Lags(int(compared), tuple(shares)) if compared >= FEWEST else None
