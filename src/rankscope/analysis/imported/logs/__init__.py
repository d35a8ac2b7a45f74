"""What log lines say together: which event began it, and which only follow."""
