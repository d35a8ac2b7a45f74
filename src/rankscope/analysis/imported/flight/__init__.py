"""Flight Recorder dumps of several ranks: what they stand in, and who keeps them there."""
