package org.gantrymq.interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A command's arguments. The usage text is the schema: {@code --name VALUE} takes a value (the last one counts, or all
 * of them through {@link #all}), {@code --name} alone is a flag, everything else is positional.
 */
final class Options {
    private static final Pattern OPTION = Pattern.compile("--([a-z][a-z-]*)( [A-Z][A-Z=:,|.]*)?");

    private final Map<String, List<String>> values = new HashMap<>();
    private final List<String> positionals = new ArrayList<>();

    static Options parse(String usage, List<String> args) {
        Map<String, Boolean> takesValue = new HashMap<>();
        for (Matcher option = OPTION.matcher(usage); option.find(); ) {
            takesValue.put(option.group(1), option.group(2) != null);
        }
        Options options = new Options();
        for (int i = 0; i < args.size(); i++) {
            if (!args.get(i).startsWith("--")) {
                options.positionals.add(args.get(i));
                continue;
            }
            String[] parts = args.get(i).substring(2).split("=", 2);
            Boolean valued = takesValue.get(parts[0]);
            if (valued == null) {
                throw new UsageException("no option --" + parts[0]);
            }
            String value = parts.length == 2 ? parts[1] : "";
            if (valued && parts.length == 1) {
                if (++i == args.size()) {
                    throw new UsageException("--" + parts[0] + " needs a value");
                }
                value = args.get(i);
            }
            options.values.computeIfAbsent(parts[0], name -> new ArrayList<>()).add(value);
        }
        return options;
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    List<String> all(String name) {
        return values.getOrDefault(name, List.of());
    }

    String text(String name) {
        List<String> given = all(name);
        if (given.isEmpty()) {
            throw new UsageException("--" + name + " is needed");
        }
        return given.get(given.size() - 1);
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name) {
        try {
            return Long.parseLong(text(name));
        } catch (NumberFormatException e) {
            throw new UsageException("--" + name + ": " + text(name) + " is no number");
        }
    }

    long number(String name, long otherwise) {
        return has(name) ? number(name) : otherwise;
    }

    int integer(String name, int otherwise) {
        return has(name) ? Math.toIntExact(number(name)) : otherwise;
    }

    String positional(String name) {
        if (positionals.size() != 1) {
            throw new UsageException("exactly one " + name + " is needed");
        }
        return positionals.get(0);
    }
}
