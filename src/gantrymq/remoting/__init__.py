"""RocketMQ's remoting protocol: frames, commands, headers and bodies; ``transport`` alone knows sockets."""
