"""What a start does after a crash, and how a reader shows a store that lacks files."""
