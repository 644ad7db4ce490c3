package org.gantrymq.interop.client;

import java.util.function.Consumer;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;

/** Changes requests to those of other clients: older ones, or ones that violate the protocol. */
final class Hooks {
    private Hooks() {
    }

    private static RPCHook before(Consumer<RemotingCommand> change) {
        return new RPCHook() {
            @Override
            public void doBeforeRequest(String address, RemotingCommand request) {
                change.accept(request);
            }

            @Override
            public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
                // answers are not changed
            }
        };
    }

    /** Sends headers in RocketMQ's binary form instead of JSON. */
    static RPCHook binary() {
        return before(request -> request.setSerializeTypeCurrentRPC(SerializeType.ROCKETMQ));
    }

    /** Sends SEND_MESSAGE with full field names, as clients before 3.2 did. */
    static RPCHook firstSendHeader() {
        return before(request -> {
            if (request.getCode() == RequestCode.SEND_MESSAGE_V2) {
                SendMessageRequestHeaderV2 header = (SendMessageRequestHeaderV2) request.readCustomHeader();
                SendMessageRequestHeader first = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV1(header);
                request.setCode(RequestCode.SEND_MESSAGE);
                request.writeCustomHeader(first);
            }
        });
    }

    /** Changes the header of a send after the client has validated it. */
    static RPCHook sending(Consumer<SendMessageRequestHeaderV2> change) {
        return before(request -> {
            if (request.readCustomHeader() instanceof SendMessageRequestHeaderV2 header) {
                change.accept(header);
            }
        });
    }
}
