package org.gantrymq.interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/**
 * A home directory for this process only, deleted at its end: RocketMQ's RocksDB logs into {@code ~/logs/rocketmqlogs},
 * and LZ4, Zstd and RocksDB unpack their native libraries into the temporary directory.
 */
final class Home {
    private static Path directory;

    private Home() {
    }

    static void enter() throws IOException {
        directory = Files.createTempDirectory("gantrymq-interop-");
        System.setProperty("user.home", directory.toString());
        System.setProperty("java.io.tmpdir", directory.toString());
    }

    static void leave() {
        try (Stream<Path> all = Files.walk(directory)) {
            List<Path> deepestFirst = all.sorted(Comparator.reverseOrder()).toList();
            for (Path path : deepestFirst) {
                Files.deleteIfExists(path);
            }
        } catch (IOException e) {
            System.err.println("interop: " + directory + " stays: " + e);
        }
    }
}
