"""Execution traces of PyTorch: nodes of any schema as columns."""
