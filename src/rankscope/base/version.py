"""The version of the package; here, so that nothing below has to import the package that imports it."""

from __future__ import annotations

VERSION = "0.1.0"
