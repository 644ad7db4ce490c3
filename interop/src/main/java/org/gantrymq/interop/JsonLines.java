package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.Map;

/** Writes one JSON object a line in UTF-8. */
final class JsonLines {
    private final OutputStream out;

    JsonLines(OutputStream out) {
        this.out = new BufferedOutputStream(out, 1 << 16);
    }

    static byte[] encode(Map<String, ?> object) {
        return JSON.toJSONBytes(object);
    }

    synchronized void line(Map<String, ?> object) {
        try {
            out.write(encode(object));
            out.write('\n');
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    synchronized void flush() {
        try {
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
