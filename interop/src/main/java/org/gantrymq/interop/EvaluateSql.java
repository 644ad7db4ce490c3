package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * What RocketMQ makes of SQL92 expressions: for each line {@code {expression,messages:[{name:value}]}} of a file a line
 * {@code {results:[…]}} with {@code true}, {@code false}, {@code null} or {@code error} for each message, or a line
 * {@code {syntax}} with the reason why the expression is invalid.
 */
final class EvaluateSql implements Command {
    @Override
    public String usage() {
        return "FILE";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        for (String text : Files.readAllLines(Path.of(options.positional("FILE")))) {
            JSONObject line = JSON.parseObject(text);
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                Expression expression = new SqlFilter().compile(line.getString("expression"));
                answer.put("results", results(expression, line.getJSONArray("messages")));
            } catch (MQFilterException e) {
                answer.put("syntax", String.valueOf(e.getMessage()));
            }
            out.line(answer);
        }
        return 0;
    }

    private static List<String> results(Expression expression, JSONArray messages) {
        List<String> results = new ArrayList<>();
        for (Object message : messages) {
            Map<String, String> properties = new HashMap<>();
            ((JSONObject) message).forEach((name, value) -> properties.put(name, (String) value));
            try {
                results.add(String.valueOf(expression.evaluate(new MessageEvaluationContext(properties))));
            } catch (Exception e) {
                results.add("error");
            }
        }
        return results;
    }
}
