"""The message store: commit log, consume queues, index, recovery. ``message_store`` alone knows all of them."""
