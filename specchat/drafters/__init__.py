"""Draft: one idea, one file. Each speaks `DraftTree` and imports the engine; none imports another but `combine`."""
