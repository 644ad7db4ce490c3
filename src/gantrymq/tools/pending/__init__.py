"""What a store still owes: delayed, timer and half messages, and messages that were popped and not acknowledged."""
