"""Lines of logs: what stands before a message, which messages say something, and Python tracebacks."""
