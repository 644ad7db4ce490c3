"""What a call carries: the messages, codes and statuses, the caller with its signature, and the checks of names."""
