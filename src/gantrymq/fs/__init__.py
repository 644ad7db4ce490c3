"""The one narrow way to the disk: everything the store reads and writes goes through :mod:`gantrymq.fs.api`."""
