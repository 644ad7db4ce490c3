package org.gantrymq.interop;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;

/**
 * Runs RocketMQ's retention on a store, as its timers would: first that of the commit log, then that of queues and
 * index. {@code --manual} requests a deletion at any hour first (executeDeleteFilesManually).
 */
final class Clean implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " [--runs N] [--manual] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        Store store = Store.open(options);
        if (options.has("manual")) {
            store.real().executeDeleteFilesManually();
        }
        Object ofLog = field(store.real(), "cleanCommitLogService");
        Object ofQueues = field(store.real().getQueueStore(), "cleanConsumeQueueService");
        for (int i = 0; i < options.integer("runs", 1); i++) {
            run(ofLog);
            run(ofQueues);
        }
        out.line(Map.of("minPhyOffset", store.real().getMinPhyOffset(), "maxPhyOffset", store.real().getMaxPhyOffset()));
        store.close(options);
        return 0;
    }

    private static void run(Object service) throws ReflectiveOperationException {
        Method run = service.getClass().getMethod("run");
        run.setAccessible(true);
        run.invoke(service);
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        for (Class<?> type = of.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(of);
                }
            }
        }
        throw new NoSuchFieldException(of.getClass() + "." + name);
    }
}
