"""``gantrymq admin``: administration of a running cluster, gantrymq's or RocketMQ's.

:mod:`gantrymq.cli.admin.commands` has the table of all commands, :mod:`gantrymq.cli.admin.session` what they share, and
:mod:`gantrymq.cli.admin.mqadmin` the names and option letters of RocketMQ's ``mqadmin``.
"""
