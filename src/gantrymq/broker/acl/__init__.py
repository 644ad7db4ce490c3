"""RocketMQ's access control by ``plain_acl.yml``: who may do what with which topic and group."""
