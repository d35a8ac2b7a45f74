"""What imported tables say: each file is digested where it was read, all digests of a kind are examined together."""
