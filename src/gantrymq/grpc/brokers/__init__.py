"""What calls need of brokers: :mod:`interface` says what, :mod:`local` and :mod:`cluster` are the two ways to it."""
