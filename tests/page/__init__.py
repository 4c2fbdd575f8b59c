"""The status page in a real Chromium, on a real gateway under some load. `make page` runs it; what it saw is kept in build/page."""
