"""Reports of campaigns for people: sums by lane, label, model and run, planned against done, one campaign against another. Read-only."""
