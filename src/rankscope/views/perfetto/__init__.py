"""Timelines as files that Perfetto (ui.perfetto.dev) and `chrome://tracing` open."""
