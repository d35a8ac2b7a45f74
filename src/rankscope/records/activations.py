"""Outputs of modules and what goes into loss functions, on the few steps that are looked at closely."""
