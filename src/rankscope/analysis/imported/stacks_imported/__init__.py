"""Stacks of many processes at one moment: who stands where, and who is elsewhere."""
