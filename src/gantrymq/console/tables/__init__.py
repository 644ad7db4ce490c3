"""The console's pages about tables of topics, beside those of a cluster or a store."""
