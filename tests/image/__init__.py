"""The container image, built and run as compose.yaml says: `make image`, as root."""
