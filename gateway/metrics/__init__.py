"""What is measured while the gateway runs, in the Prometheus text format; names of OpenTelemetry's conventions for generative AI where there are some.

Rule: labels come from configuration, from fixed lists of words, and from the names of at most 50 open campaigns, never from what an agent sends, so the number
of series is bounded. What every call adds to is a plain number: the form that Prometheus reads is made when it asks.

* metrics.py: all that is measured, and what a call adds to
* sums.py: the plain numbers: counters, histograms, and levels that are asked for when they are read
"""
