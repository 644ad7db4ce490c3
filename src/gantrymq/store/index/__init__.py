"""The index by key: its files, and the dispatch of records to them."""
