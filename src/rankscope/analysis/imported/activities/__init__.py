"""What devices did, and why they did nothing, from activity tables without operators (Nsight Systems)."""
