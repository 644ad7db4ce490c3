"""Where a client runs: its process, the thread of its event loop, its background tasks."""
