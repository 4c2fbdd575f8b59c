"""Dashboards and rules against a real Prometheus that scraped a real gateway: `make dashboards`. It needs `prometheus` and `promtool` of Debian's package."""
