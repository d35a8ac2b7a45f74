"""Errors that are shown to the user as one line: what, where, what to do."""

from __future__ import annotations


class UserError(ValueError):
    """The user's input cannot be used. The message says what is wrong, where, and what to do."""
