"""A sandbox tried from inside: `make isolation`, as root."""
