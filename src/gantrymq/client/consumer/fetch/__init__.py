"""How the messages of the assigned queues get to the member: by pulls or by POP."""
