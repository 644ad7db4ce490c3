"""RocketMQ's access control by ``plain_acl.yml``: the permissions of accounts on topics and groups."""
