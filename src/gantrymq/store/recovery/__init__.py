"""Recovery of a store at its start, the checks before it, and a reader's view of a store with missing files."""
