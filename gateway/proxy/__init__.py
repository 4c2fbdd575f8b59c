"""TODO card."""
