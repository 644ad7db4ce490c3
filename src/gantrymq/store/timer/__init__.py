"""Timer messages: the wheel, its log, their recovery and the service that delivers."""
