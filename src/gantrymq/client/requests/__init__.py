"""What a client asks of servers, how the answers are read, and the objects they become; no I/O."""
