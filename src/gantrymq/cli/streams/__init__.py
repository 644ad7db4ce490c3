"""Messages in and out of this process: what ``gantrymq produce`` and ``gantrymq consume`` are made of."""
