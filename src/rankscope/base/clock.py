"""The one clock of a node: monotonic, shared by all its processes."""

from __future__ import annotations

import time

now_ns = time.monotonic_ns
"""CLOCK_MONOTONIC in ns: the same in every process of a node, never set back."""
