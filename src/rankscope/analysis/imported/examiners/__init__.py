"""One file a kind of table; the file is the registration."""
