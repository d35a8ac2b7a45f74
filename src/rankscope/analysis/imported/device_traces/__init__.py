"""What device traces say: one idea a file."""
