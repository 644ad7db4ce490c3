package org.gantrymq.interop;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;

/** Addresses as text: {@code ip:port}, an IPv6 address in Java's form (eight groups, no brackets). */
final class Hosts {
    private Hosts() {
    }

    static String text(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    static InetSocketAddress parse(String text) {
        int colon = text.lastIndexOf(':');
        try {
            int port = Integer.parseInt(text.substring(colon + 1));
            return new InetSocketAddress(InetAddress.getByName(text.substring(0, colon)), port);
        } catch (UnknownHostException | RuntimeException e) {
            throw new UsageException(text + " is no ip:port");
        }
    }
}
