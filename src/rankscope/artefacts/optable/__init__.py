"""Operation tables: the columns that files give under many names, in our units."""
