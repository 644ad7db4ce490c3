"""SQL92 filters over the properties of messages: parse, compile, evaluate. No I/O."""
