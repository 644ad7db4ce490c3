package org.gantrymq.interop;

import java.util.List;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * RocketMQ's configuration of one store: its defaults, except where a test would depend on the machine (no fixed port,
 * no deletion by age or because the disk is full), and every {@code --set key=value} of the command line.
 */
final class Settings {
    final MessageStoreConfig store = new MessageStoreConfig();
    final BrokerConfig broker = new BrokerConfig();

    Settings(String directory, List<String> assignments) {
        store.setStorePathRootDir(directory);
        store.setHaListenPort(0);
        store.setTimerWheelEnable(false);
        store.setCleanFileForciblyEnable(false);
        store.setDiskMaxUsedSpaceRatio(95);
        store.setFileReservedTime(1_000_000);
        assign(assignments);
    }

    void assign(List<String> assignments) {
        assignments.forEach(this::assign);
    }

    private void assign(String assignment) {
        String[] parts = assignment.split("=", 2);
        if (parts.length < 2) {
            throw new UsageException("--set " + assignment + ": key=value is needed");
        }
        Properties one = new Properties();
        one.setProperty(parts[0], parts[1]);
        boolean known = false;
        for (Object config : List.of(store, broker)) {
            MixAll.properties2Object(one, config); // ignores unknown keys and bad values silently
            String now = MixAll.object2Properties(config).getProperty(parts[0]);
            if (now != null && !same(now, parts[1].trim())) {
                throw new UsageException("--set " + assignment + ": RocketMQ does not take this value");
            }
            known |= now != null;
        }
        if (!known) {
            throw new UsageException("--set " + assignment + ": RocketMQ has no such key");
        }
    }

    private static boolean same(String one, String other) {
        try {
            return Double.parseDouble(one) == Double.parseDouble(other); // so that 1 equals 1.0
        } catch (NumberFormatException e) {
            return one.equalsIgnoreCase(other);
        }
    }
}
