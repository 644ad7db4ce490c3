"""Writing rows into a store or a live cluster."""
