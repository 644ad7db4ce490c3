package org.gantrymq.interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;

/** Prints the physical records in the order of the files. No store is opened, and nothing is changed. */
final class Log implements Command {
    @Override
    public String usage() {
        return "--store DIR";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        List<Path> files;
        try (Stream<Path> all = Files.list(Path.of(options.text("store"), "commitlog"))) {
            files = all.sorted().toList();
        }
        long end = 0;
        String reason = null;
        for (int i = 0; i < files.size() && reason == null; i++) {
            ByteBuffer file = map(files.get(i));
            long start = Long.parseLong(files.get(i).getFileName().toString());
            reason = records(file, start, out);
            end = start + file.position();
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "end");
        line.put("phyOffset", end);
        line.put("reason", reason == null ? "end of log" : reason);
        out.line(line);
        return 0;
    }

    private static ByteBuffer map(Path file) throws IOException {
        try (FileChannel channel = FileChannel.open(file)) {
            return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
        }
    }

    /**
     * Prints one file's records and leaves the buffer behind the last. Returns why the log ends, or null at a blank.
     */
    private static String records(ByteBuffer file, long start, JsonLines out) {
        while (file.remaining() >= 8) {
            int at = file.position();
            int size = file.getInt(at);
            int magic = file.getInt(at + 4);
            if (size == 0 && magic == 0) {
                return "zeros";
            }
            if (magic == CommitLog.BLANK_MAGIC_CODE) {
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("kind", "blank");
                line.put("phyOffset", start + at);
                line.put("size", size);
                out.line(line);
                file.position(file.limit());
                return null;
            }
            if (magic != MessageDecoder.MESSAGE_MAGIC_CODE && magic != MessageDecoder.MESSAGE_MAGIC_CODE_V2) {
                return "magic code " + Integer.toHexString(magic);
            }
            if (size <= 0 || size > file.remaining()) {
                return "size " + size;
            }
            MessageExt message = whole(file.slice(at, size));
            if (message == null) {
                return "half a record";
            }
            byte[] body = message.getBody();
            out.line(new MessageLine(message.getTopic(), message.getQueueId(), message.getQueueOffset(), start + at, size)
                .with("version", magic == MessageDecoder.MESSAGE_MAGIC_CODE ? 1 : 2)
                .with("crcOk", body == null || UtilAll.crc32(body) == message.getBodyCRC())
                .of(message));
            file.position(at + size);
        }
        return "end of file without a blank";
    }

    /** The message, if its fields fill exactly the size in the record. */
    private static MessageExt whole(ByteBuffer record) {
        MessageExt message = MessageDecoder.decode(record, true, false);
        if (message == null || record.position() != record.limit()) {
            return null;
        }
        return message;
    }
}
