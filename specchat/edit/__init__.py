"""Files in, patches out."""
