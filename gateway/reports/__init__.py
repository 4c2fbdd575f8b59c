"""Reports of campaigns for people: sums by lane, label, model and run, planned against done, one campaign against another. Read-only.

The rule: what is unknown is said to be unknown; no sum covers two labels unasked; a sum of times is never passed off as time on a clock; where nothing ran
there is no rate.

- `call_rows.py`: one row a call, with what stood there before a correction
- `history.py`: one run as it went, for a page
- `run_rows.py`: one row a run
- `aggregates.py`: sums by run, lane, model and label
- `gathering.py`: a campaign read run by run, and what each report keeps of it
- `intervals.py`: times that overlap: their sum, their union, and the gaps
- `times.py`: waiting, computing, idling, occupancy, rates
- `prices.py`: what calls would have cost, where a policy declares prices
- `corrections.py`: what was corrected, with both values
- `contexts.py`: how prompts grew, by role
- `campaign.py`: the report of a campaign
- `comparison.py`: campaigns side by side, paired run by run
- `outcomes.py`: what counts as reached
"""
