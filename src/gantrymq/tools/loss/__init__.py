"""The account of loss: what a store said it had, against what the result of a tool has."""
