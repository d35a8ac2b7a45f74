"""One file a format; the file is the registration."""
