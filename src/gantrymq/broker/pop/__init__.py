"""POP: checkpoints of popped messages, their acknowledgements, and what makes the other messages visible again."""
