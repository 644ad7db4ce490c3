package org.gantrymq.interop.client;

import java.util.function.Consumer;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;

/** Requests as other clients, older ones or such without manners, would write them. */
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
                // nothing to do with answers
            }
        };
    }

    /** Headers in RocketMQ's binary form instead of JSON. */
    static RPCHook binary() {
        return before(request -> request.setSerializeTypeCurrentRPC(SerializeType.ROCKETMQ));
    }

    /** SEND_MESSAGE with whole names, as clients before 3.2 sent it. */
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

    /** A send whose header is changed behind the client's back, which checks it before. */
    static RPCHook sending(Consumer<SendMessageRequestHeaderV2> change) {
        return before(request -> {
            if (request.readCustomHeader() instanceof SendMessageRequestHeaderV2 header) {
                change.accept(header);
            }
        });
    }
}
