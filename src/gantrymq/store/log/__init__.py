"""The commit log: its files, and how records are appended, flushed, deleted and scanned."""
