"""Timer messages: the wheel, the timer log, their recovery, and the service that delivers messages."""
