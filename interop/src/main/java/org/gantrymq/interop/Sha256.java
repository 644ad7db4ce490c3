package org.gantrymq.interop;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/**
 * The SHA-256 of a body in hexadecimal. Null counts as an empty body, because RocketMQ decodes an empty body to null.
 */
final class Sha256 {
    private Sha256() {
    }

    static String of(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body == null ? new byte[0] : body));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
    }
}
