"""Memory snapshots: a pickle machine that knows plain values only, and the columns that it fills."""
