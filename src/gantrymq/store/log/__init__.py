"""The commit log: its files, how records are put, flushed, removed, and read in batches."""
