"""Rows as numpy arrays; apart from the layout itself, so that a training process need not import numpy."""

from __future__ import annotations

from typing import Final

import numpy as np

from rankscope.records.slot import ROW_FIELDS, SLOT_FIELDS

SLOT_DTYPE: Final = np.dtype(list(SLOT_FIELDS))
"""One slot of a ring."""
ROW_DTYPE: Final = np.dtype(list(ROW_FIELDS))
"""One row: `np.frombuffer(rows, ROW_DTYPE)`."""
