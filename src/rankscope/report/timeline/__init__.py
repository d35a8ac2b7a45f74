"""All ranks of a run, or of traces of another tool, as tracks on one clock: what `rankscope timeline` writes."""
