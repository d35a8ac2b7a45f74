"""Nsight Systems exports: SQLite read row by row, whatever tables and columns a version has."""
