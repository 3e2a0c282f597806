package mixin

import (
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// grabs returns the rules for faults that users notice.
func grabs(l Limits) []Alert {
	grab := func(outcome, values string) [2]string { return at(metrics.Grabs, `outcome="`+outcome+`"`, values) }
	errors := rises("", metrics.Grabs.Name+`{outcome=~"error_.+",outcome!~"error_(canceled|permanent)"}`, l)
	bucket := func(le, values string) [2]string {
		return sample(metrics.GrabSeconds.Name+"_bucket", `le="`+le+`"`, values)
	}
	count := func(values string) [2]string { return sample(metrics.GrabSeconds.Name+"_count", "", values) }
	return []Alert{
		{Code: "grab_errors", Severity: critical, Summary: "More than one grab in a hundred ends with an error", For: l.Soon,
			Expr: fmt.Sprintf("%s > %d and %[1]s / %[3]s > 0.01", errors, l.Errors, rises("", metrics.Grabs.Name, l)),
			Cases: []Case{fires("for two in a hundred", grab("error_unknown", "0+4x30"), grab("granted", "0+196x30")),
				silent("without errors", grab("error_unknown", "0x30"), grab("granted", "0+196x30")),
				silent("for one of twenty at night", grab("error_unknown", "0x27 1x3"), grab("sold_out", "0+2x30")),
				silent("for mistakes of callers", grab("error_permanent", "0+50x30"), grab("granted", "0+50x30")),
				silent("for callers who hung up", grab("error_canceled", "0+50x30"), grab("granted", "0+50x30"))}},
		{Code: "grab_slow", Severity: critical, Summary: "One grab in a hundred waits longer than a second", For: l.Soon,
			Expr: fmt.Sprintf("histogram_quantile(0.99, %s) > 1 and %s > %d",
				per("sum", "le", fmt.Sprintf("rate(%s_bucket[%s])", metrics.GrabSeconds.Name, span(l.Window))),
				rises("", metrics.GrabSeconds.Name+"_count", l), l.Grabs),
			Cases: []Case{
				fires("in a rush", bucket("1", "0+900x30"), bucket("2.5", "0+1000x30"), bucket("+Inf", "0+1000x30"),
					count("0+1000x30")),
				silent("if grabs are fast", bucket("1", "0+1000x30"), bucket("+Inf", "0+1000x30"), count("0+1000x30")),
				silent("for one of twenty at night", bucket("1", "0x20 19x10"), bucket("2.5", "0x20 20x10"),
					bucket("+Inf", "0x20 20x10"), count("0x20 20x10"))}},
	}
}

// ledger returns the rules for work in the ledger that does not end.
func ledger(l Limits) []Alert {
	waits := func(code, summary, kind string, lasts time.Duration) Alert {
		of := `kind="` + kind + `"`
		return Alert{Code: code, Severity: warning, Summary: summary, For: lasts,
			Expr: fmt.Sprintf("%s > %g", per("max", "", metrics.UnfinishedSeconds.Name+"{"+of+"}"), l.Old.Seconds()),
			Cases: []Case{fires("while it lasts", at(metrics.UnfinishedSeconds, of, "0+60x30")),
				silent("in a rush", steady(metrics.UnfinishedSeconds, of, "40")),
				silent("during a scale-up from zero", at(metrics.UnfinishedSeconds, of, "0x24 60 120 180 240 300"))}}
	}
	return []Alert{
		waits("credit_in_doubt", "The result of a credit at the remote is unknown for minutes", "credits", l.Old),
		waits("top_up_waits", "The packets of a top-up are not in Redis after minutes", "top_ups", l.Soon),
		{Code: "journal_waits", Severity: warning, For: l.Old,
			Summary: "Entries of the journal wait in Redis, where they can be changed and removed",
			Expr:    per("max", "", metrics.JournalWaits.Name) + " > 0",
			Cases: []Case{fires("while the ledger is down", at(metrics.JournalWaits, "", "0x9 1+1x20")),
				silent("after they were moved", at(metrics.JournalWaits, "", "7x20 0x9")),
				silent("if none waits", steady(metrics.JournalWaits, "", "0"))}},
		{Code: "campaign_unrefunded", Severity: warning,
			Summary: "The window of a campaign ended more than a day ago, and its sponsor has no refund",
			Expr:    fmt.Sprintf("%s > %g", per("max", "", metrics.UnrefundedSeconds.Name), l.Refund.Seconds()),
			Cases: []Case{fires("a day after the end", at(metrics.UnrefundedSeconds, "", "86000+60x30")),
				silent("a night after the end", at(metrics.UnrefundedSeconds, "", "40000+60x30")),
				silent("after the refund", at(metrics.UnrefundedSeconds, "", "90000x20 0x9")),
				silent("if the next campaign is young", at(metrics.UnrefundedSeconds, "", "90000x20 3600+60x9"))}},
	}
}

// audits returns the rules for the audit.
func audits(l Limits) []Alert {
	found := func(all, letters, agrees string) [][2]string {
		return [][2]string{steady(metrics.AuditDifferences, "", all), steady(metrics.AuditDeadLetters, "", letters),
			steady(metrics.AuditAgrees, "", agrees)}
	}
	last := per("max", "", metrics.AuditTime.Name)
	up, audited := steady(metrics.StateUp, `instance="a"`, "1"), steady(metrics.AuditTime, "", "0")
	return []Alert{
		{Code: "audit_differs", Severity: critical, Summary: "The last audit of all campaigns found differences",
			Expr: per("max", "", metrics.AuditDifferences.Name+" - "+metrics.AuditDeadLetters.Name) + " > 0",
			Cases: []Case{fires("for a difference", found("4", "3", "0")...), silent("for dead letters", found("3", "3", "0")...),
				silent("without a difference", found("0", "0", "1")...)}},
		{Code: "audit_old", Severity: warning, For: l.Old,
			Summary: "No audit of all campaigns has finished within ops.audit_max_age",
			Expr: fmt.Sprintf("time() - %s > on (%s) %s or %s == 1 unless on (%[2]s) %[1]s", last, whole,
				per("max", "", metrics.AuditMaxAge.Name), per("max", "", metrics.StateUp.Name)),
			Cases: []Case{fires("without an audit", up),
				fires("after 29 minutes, if it runs every quarter", up, audited, steady(metrics.AuditMaxAge, "", "1200")),
				silent("after 29 minutes, if it runs every night", up, audited, steady(metrics.AuditMaxAge, "", "93600"))}},
	}
}

// keys returns the rule for API keys that end. The series of a key ends with it.
func keys() []Alert {
	end := func(values string) [2]string { return at(metrics.KeyEnds, `role="client"`, values) }
	cert := func(values string) [2]string { return at(metrics.CertificateEnds, `knob="serve.tls_cert"`, values) }
	return []Alert{{Code: "certificate_ends", Severity: warning, Summary: "A certificate expires within a week",
		Expr: fmt.Sprintf("%s - time() < %.0f", per("min", "knob", metrics.CertificateEnds.Name), access.EndsSoon.Seconds()),
		Cases: []Case{fires("six days before", cert("520000x30")), silent("a month before", cert("2600000x30")),
			silent("after the renewal", cert("520000x20 8000000x10")),
			silent("without a certificate", steady(metrics.BuildInfo, `command="balance"`, "1"))},
		Labels: map[string]string{"knob": "serve.tls_cert"}}, {Code: "key_ends", Severity: warning, Summary: "An API key expires within a week",
		Expr: fmt.Sprintf("%s - time() < %.0f", per("min", "role", metrics.KeyEnds.Name), access.EndsSoon.Seconds()),
		Cases: []Case{fires("six days before", end("520000x30")), silent("a month before", end("2600000x30")),
			fires("if one of two servers reports it", at(metrics.KeyEnds, `role="client",instance="a"`, "520000x30"),
				at(metrics.KeyEnds, `role="client",instance="b"`, "2600000x30")),
			silent("after the rotation", end("520000x20 8000000x10")),
			silent("if no key ends", steady(metrics.BuildInfo, `command="balance"`, "1"))},
		Labels: map[string]string{"role": "client"}}}
}

// scrapes returns the rules for failures of the monitoring itself.
func scrapes(l Limits) []Alert {
	info := func(command, instance, values string) [2]string {
		return at(metrics.BuildInfo, `command="`+command+`",instance="`+instance+`"`, values)
	}
	servers := metrics.BuildInfo.Name + `{command=~"serve|control|balance"}`
	gone := func(labels, series string) string {
		return fmt.Sprintf("%s unless %s", per("count", labels, fmt.Sprintf("last_over_time(%s[%s])", series, span(l.Gone))),
			per("count", labels, series))
	}
	workers := steady(metrics.Workers, kafka, "1")
	return []Alert{
		{Code: "process_down", Severity: critical, Summary: "Prometheus can't scrape a process of Hongbao", For: l.Soon,
			Expr: `up{job=~"hongbao.*"} == 0`,
			Cases: []Case{fires("after a minute", [2]string{`up{job="hongbao-work",instance="a"}`, "0x30"}),
				silent("for one failed scrape", [2]string{`up{job="hongbao-work",instance="a"}`, "1x28 0"}),
				silent("after a scale-down", [2]string{`up{job="hongbao-work",instance="a"}`, "1x15 stale"})},
			Labels: map[string]string{"job": "hongbao-work", "instance": "a"}},
		{Code: "deployment_gone", Severity: critical, Summary: "Prometheus has lost all processes of a deployment", For: l.Old,
			Expr: gone("", metrics.BuildInfo.Name),
			Cases: []Case{fires("if all processes vanish", info("serve", "a", "1x15 stale"), info("work", "b", "1x15 stale")),
				silent("if the workers are scaled to zero", info("serve", "a", "1x30"), info("work", "b", "1x15 stale")),
				silent("in a rollout", info("serve", "a", "1x15 stale"), info("serve", "b", "_x17 1x12")),
				silent("hours after a person removed it", info("serve", "a", "1x15 stale")).after(7 * time.Hour)}},
		{Code: "server_gone", Severity: critical, Summary: "Prometheus has lost all servers of a deployment", For: l.Old,
			Expr: fmt.Sprintf("%s and on (%s) %s", gone("command", servers), whole, per("count", "", metrics.BuildInfo.Name)),
			Cases: []Case{fires("if serve vanishes", info("serve", "a", "1x15 stale"), info("work", "b", "1x30")),
				silent("in a rollout", info("serve", "a", "1x15 stale"), info("serve", "b", "_x17 1x12")),
				silent("without servers", info("work", "b", "1x30")),
				silent("hours after a person removed it", info("serve", "a", "1x15 stale"),
					info("work", "b", "1x500")).after(7 * time.Hour)},
			Labels: map[string]string{"command": "serve"}},
		{Code: "worker_unscraped", Severity: warning, For: l.Old,
			Summary: "A sink has workers, and Prometheus scrapes none of them",
			Expr: fmt.Sprintf("%s > 0 unless %s", per("max", "sink", metrics.Workers.Name),
				per("count", "sink", metrics.SinkShards.Name)),
			Cases: []Case{fires("if the metrics vanish", workers, at(metrics.SinkShards, kafka+`,code="working"`, "4x15 stale")),
				silent("if a worker is scraped", workers, steady(metrics.SinkShards, kafka+`,code="working"`, "4")),
				silent("if the workers are scaled to zero", at(metrics.Workers, kafka, "1x15 0x15"),
					at(metrics.SinkShards, kafka+`,code="working"`, "4x15 stale")),
				silent("in a rollout", workers, at(metrics.SinkShards, kafka+`,code="working"`, "4x25 _x3 4"))},
			Labels: map[string]string{"sink": "kafka"}},
	}
}
