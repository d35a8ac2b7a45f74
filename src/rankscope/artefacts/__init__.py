"""Files of other tools: opened safely, recognised, read into the tables of `records/imported`."""
