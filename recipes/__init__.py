"""How the embedded models were trained. Not part of the wheel."""
