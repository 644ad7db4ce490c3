"""The index by key: its files, and how records are dispatched to them."""
