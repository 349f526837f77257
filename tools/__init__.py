"""Scripts for developers. Not part of the wheel."""
