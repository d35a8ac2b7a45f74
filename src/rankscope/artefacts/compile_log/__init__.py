"""Parts of the reader of torch_trace compile logs."""
