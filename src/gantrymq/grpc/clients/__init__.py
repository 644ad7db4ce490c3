"""The clients of a proxy: who is connected, with which settings, and which of their messages are renewed."""
