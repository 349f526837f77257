"""The plain, linear front end: lines in, lines out, nothing is ever drawn twice."""
