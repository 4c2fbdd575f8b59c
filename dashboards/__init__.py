"""Grafana dashboards, made here and committed as JSON under grafana/dashboards; Prometheus' configuration and rules stand beside them.

Rule: each panel says what it shows and what to do about it, and asks for nothing that docs/metrics.md does not name.

* forms.py: the few forms of panels, so that all look alike
* overview.py: one screen for every day
* budgets.py: what each open campaign may still use
* engines.py: who answers, how fast, and how full
* reliability.py: what went wrong, and whether the figures can be believed
* make.py: writes the JSON
"""
