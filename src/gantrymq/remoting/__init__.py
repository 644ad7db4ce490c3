"""RocketMQ's remoting protocol: frames, commands, headers and bodies. Only ``transport`` uses sockets."""
