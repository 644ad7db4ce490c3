"""The advice in refusals and findings about a commit log with missing or damaged files."""

SALVAGE = "`gantrymq store salvage` makes a new store of what is there"
ACCEPT = "--set acceptMissingCommitLog=true"
