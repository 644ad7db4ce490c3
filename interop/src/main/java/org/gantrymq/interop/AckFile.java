package org.gantrymq.interop;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;

/** Writes a JSON line for every acknowledged message. The operating system has the line before the message counts. */
final class AckFile implements Closeable {
    private final FileChannel file;

    /** With a null path nothing is written. */
    AckFile(String path) throws IOException {
        file = path == null ? null : FileChannel.open(Path.of(path),
            StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
    }

    boolean wanted() {
        return file != null;
    }

    synchronized void write(List<Map<String, Object>> lines) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (Map<String, Object> line : lines) {
            bytes.write(JsonLines.encode(line));
            bytes.write('\n');
        }
        for (ByteBuffer left = ByteBuffer.wrap(bytes.toByteArray()); left.hasRemaining(); ) {
            file.write(left);
        }
    }

    @Override
    public void close() throws IOException {
        if (wanted()) {
            file.close();
        }
    }
}
