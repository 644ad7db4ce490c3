"""The pages for a store directory. Nothing is written, and the store need not be closed."""
