"""Batches, their tensors and indices, and the state of random generators: what a rank trains on."""
