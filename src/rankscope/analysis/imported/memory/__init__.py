"""What a history of allocations says: lifetimes, call-sites, categories, steps, leaks, failures, free pieces."""
