"""Whether a model looks at no later token, as far as that can be told from its modules and buffers."""

from __future__ import annotations

import re
from typing import Any, Final

NAMES: Final = re.compile(r"gpt|causal|llama|(?<!masked)lm\b|language_?model", re.IGNORECASE)
"""In the class of a model: its author means one that predicts the next token."""
NOT_THESE: Final = re.compile(r"masked|mlm|bert|encoder", re.IGNORECASE)
LARGEST_MASK: Final = 4096


def is_causal(model: Any) -> bool:
    """Whether it holds a triangular mask, is one recurrence in one direction, or has the name of such a model."""
    import torch

    kind = type(model).__name__
    if NAMES.search(kind) and not NOT_THESE.search(kind):
        return True
    recurrent = [module for module in model.modules() if isinstance(module, torch.nn.RNNBase)]
    # Two of them may be an encoder and a decoder: the first one sees all tokens.
    if len(recurrent) == 1 and not recurrent[0].bidirectional:
        return True
    return any(_triangular(buffer) for buffer in model.buffers())


def _triangular(mask: Any) -> bool:
    """Whether a buffer [..., n, n] says one thing below its diagonal and another one above."""
    import torch

    if type(mask) is not torch.Tensor or mask.dim() < 2 or mask.device.type != "cpu":
        return False
    n = mask.shape[-1]
    if mask.shape[-2] != n or not 2 < n <= LARGEST_MASK or mask.numel() != n * n:
        return False
    with torch.no_grad():
        square = mask.detach().reshape(n, n)[:64, :64]
        size = square.shape[0]
        above, below = torch.triu_indices(size, size, 1, device="cpu"), torch.tril_indices(size, size, device="cpu")
        high, low = square[above[0], above[1]], square[below[0], below[1]]
        return bool((high == high[0]).all() and (low == low[0]).all() and high[0] != low[0])
