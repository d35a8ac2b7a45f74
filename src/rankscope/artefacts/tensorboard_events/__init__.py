"""TensorBoard event files: records with check sums, and the protocol buffers in them, without either library."""
