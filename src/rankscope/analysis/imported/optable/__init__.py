"""What-if analysis of a job's operations: its dependency graph, replayed with other durations."""
