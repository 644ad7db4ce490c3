package org.gantrymq.interop;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Decodes frames, one a line in hexadecimal. Prints what RemotingCommand reads from each, and how it encodes that in
 * both forms.
 */
final class Frames implements Command {
    @Override
    public String usage() {
        return "FILE";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        for (String text : Files.readAllLines(Path.of(options.positional("FILE")))) {
            ByteBuffer frame = ByteBuffer.wrap(HexFormat.of().parseHex(text));
            frame.getInt(); // the length, which Netty's decoder removes
            out.line(line(RemotingCommand.decode(frame)));
        }
        return 0;
    }

    private static Map<String, Object> line(RemotingCommand command) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("code", command.getCode());
        line.put("language", command.getLanguage().name());
        line.put("version", command.getVersion());
        line.put("opaque", command.getOpaque());
        line.put("flag", command.getFlag());
        line.put("remark", command.getRemark());
        line.put("extFields", command.getExtFields() == null ? Map.of() : command.getExtFields());
        line.put("body", command.getBody() == null ? "" : HexFormat.of().formatHex(command.getBody()));
        line.put("form", command.getSerializeTypeCurrentRPC().name());
        for (SerializeType type : SerializeType.values()) {
            command.setSerializeTypeCurrentRPC(type);
            line.put(type.name(), HexFormat.of().formatHex(command.encode().array()));
        }
        return line;
    }
}
