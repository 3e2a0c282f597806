import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Grabs once, with Java 17 or newer and nothing else: java Grab.java URL CAMPAIGN USER. EXAMPLE_SECRET has the
 * secret of the key "k1". Your identity provider signs the tokens of real users; ISSUER and AUDIENCE are serve.issuer
 * and serve.audience.
 */
public class Grab {
    private static final HttpClient CLIENT = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();

    static String base64url(byte[] data) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(data);
    }

    static String token(String user) throws Exception {
        long exp = System.currentTimeMillis() / 1000 + 60;
        String head = "{\"alg\":\"HS256\",\"typ\":\"JWT\",\"kid\":\"k1\"}";
        String claims = String.format("{\"iss\":\"%s\",\"aud\":\"%s\",\"sub\":\"%s\",\"device_id\":\"%s-phone\",\"exp\":%d}",
            System.getenv("ISSUER"), System.getenv("AUDIENCE"), user, user, exp);
        String text = base64url(head.getBytes(StandardCharsets.UTF_8)) + "."
            + base64url(claims.getBytes(StandardCharsets.UTF_8));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(System.getenv("EXAMPLE_SECRET").getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        return text + "." + base64url(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
    }

    /**
     * Sends one grab until it is decided: every repeat has the same request id, so it gets the same answer. The
     * timeout is longer than the server may wait: producer.undecided_timeout and producer.call_timeout.
     */
    static String grab(String url, String campaign, String user, String requestId) throws Exception {
        for (int attempt = 0; attempt < 10; attempt++) {
            long pause = Math.min(100L << attempt, 2000);
            HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/v1/campaigns/" + campaign + "/grabs"))
                .timeout(Duration.ofSeconds(30)).header("Authorization", "Bearer " + token(user))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\"request_id\":\"" + requestId + "\"}")).build();
            try {
                HttpResponse<String> answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
                int status = answer.statusCode();
                if (status == 200) {
                    return answer.body();
                }
                if (status != 408 && status != 429 && status != 503) {
                    throw new IllegalStateException(answer.body());
                }
                pause = answer.headers().firstValueAsLong("Retry-After").orElse(1) * 1000;
            } catch (java.io.IOException e) {
                // the grab may have been granted: repeat it
            }
            Thread.sleep(pause);
        }
        throw new IllegalStateException("no answer; the same request id may be sent later");
    }

    public static void main(String[] args) throws Exception {
        System.out.println(grab(args[0], args[1], args[2], UUID.randomUUID().toString()));
    }
}
