"""The push consumer: calls of the listener, and what becomes of the messages after them."""
