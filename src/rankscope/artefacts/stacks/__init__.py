"""Dumps of stacks as tools write them, line by line or as JSON."""
