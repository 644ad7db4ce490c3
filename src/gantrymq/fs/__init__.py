"""File systems. Everything that the store reads and writes goes through the protocols of :mod:`gantrymq.fs.api`."""
