"""Tables that the readers of other tools' files fill: one file a kind, every column with its meaning and unit."""
