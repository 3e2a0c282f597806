// Package webhook delivers grants to a receiver of webhooks: one signed HTTP POST for each grant.
//
// A Handler is a hongbao.Handler. The body of a request is a CloudEvent, whose data is the JSON that the grant's record
// in the topic has. The signature is that of Standard Webhooks. The id of the event consists of campaign and packet, so
// every try and every worker sends the same id. Each try gets a signature of its own.
//
// The receiver gets each event at least once, in no order: if an answer is lost, the event is sent again. So it must
// remember the ids. Nothing is stored here.
//
// Every result of a request leads to one of these verdicts (see the table in verdict.go):
//
//   - accepted: the receiver has the event.
//   - refused: the receiver never accepts this event, which becomes a dead letter.
//   - misdirected: the endpoint refuses every event, because the URL, the secret or the receiver is wrong. The sink
//     stops with an alarm.
//   - unavailable: the endpoint takes no event now. This is an outage.
//   - failed: the failure may concern this event or all of them. Type failures finds that out.
//   - odd: an answer about this event that nothing explains. The event is sent again, and each attempt counts.
//
// Connections to private addresses are refused unless Config.AllowPrivate is set. Redirects are not followed, and
// proxies from the environment are ignored.
package webhook
