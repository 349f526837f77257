"""The engine process: model, caches and sessions live here, every front end is a thin client."""
