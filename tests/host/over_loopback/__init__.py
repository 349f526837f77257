"""What holds over the Unix socket holds over TCP: the same tests, with the other transport."""
