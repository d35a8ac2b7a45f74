"""Reading Kineto's Chrome JSON in pieces: layout, events, dialects, columns."""
