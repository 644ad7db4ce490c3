"""What refusals and findings tell people to do about a commit log that is not whole."""

SALVAGE = "`gantrymq store salvage` makes a new store of what is there"
ACCEPT = "--set acceptMissingCommitLog=true"
