"""The account of loss: what the old store had and the result of a tool does not have."""
