"""A name server and a broker in one process, for ``gantrymq serve`` and for tests."""
