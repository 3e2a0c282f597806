package mixin

import (
	"fmt"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
)

// redis returns the rules for the servers of Redis.
func redis(l Limits) []Alert {
	const r1 = `server="r:1"`
	server := map[string]string{"server": "r:1"}
	// setting returns a rule for a server whose metric is 0, unless unsafe.allow has one of the checks.
	setting := func(code, summary string, m *metrics.Metric, checks string) Alert {
		a := Alert{Code: code, Severity: critical, Summary: summary, Expr: per("min", "server", m.Name) + " == 0",
			Cases: []Case{fires("at once", steady(m, r1, "0")), silent("on a right server", steady(m, r1, "1"))}, Labels: server}
		if checks != "" {
			a.Expr += " unless on (" + whole + ") " + per("max", "", metrics.UnsafeAllow.Name+`{check=~"`+checks+`"}`)
			a.Cases = append(a.Cases, silent("if unsafe.allow permits it", steady(m, r1, "0"),
				steady(metrics.UnsafeAllow, `check="redis_settings"`, "1")))
		}
		return a
	}
	return []Alert{
		{Code: "redis_down", Severity: critical, Summary: "A server of Redis does not answer", For: l.Soon,
			Expr: per("min", "instance", metrics.StateUp.Name) + " == 0",
			Cases: []Case{fires("after a minute", steady(metrics.StateUp, `instance="a"`, "0")),
				silent("for a single failure", at(metrics.StateUp, `instance="a"`, "1x28 0")),
				silent("if Redis answers", steady(metrics.StateUp, `instance="a"`, "1"))},
			Labels: map[string]string{"instance": "a"}},
		{Code: "shard_frozen", Severity: critical, For: l.Soon,
			Summary: "A shard is frozen: it decides no grabs and delivers nothing",
			Expr:    per("min", "shard", metrics.ShardOpen.Name) + " == 0",
			Cases: []Case{fires("after a minute", steady(metrics.ShardOpen, `shard="3"`, "0")),
				silent("during a failover of seconds", at(metrics.ShardOpen, `shard="3"`, "1x28 0")),
				silent("if the shard is open", steady(metrics.ShardOpen, `shard="3"`, "1"))},
			Labels: map[string]string{"shard": "3"}},
		setting("redis_lost_append_only", "A server of Redis writes no append-only file", metrics.RedisPersists,
			"redis_appendonly|redis_settings"),
		setting("redis_evicts", "Redis may evict receipts: maxmemory-policy is not noeviction", metrics.RedisKeeps,
			"redis_settings"),
		setting("redis_writes_fail", "A server of Redis could not write its files", metrics.RedisWrites, ""),
		{Code: "redis_memory", Severity: critical, For: l.Soon,
			Summary: "A server of Redis uses more than 80 % of its maxmemory, or of the machine's memory",
			Expr: per("max", "server", fmt.Sprintf("%s / (%s > 0 or %s > 0)", metrics.RedisMemory.Name,
				metrics.RedisMaxMemory.Name, metrics.RedisMachineMemory.Name)) + " > 0.8",
			Cases: []Case{
				fires("at maxmemory", steady(metrics.RedisMemory, r1, "90"), steady(metrics.RedisMaxMemory, r1, "100"),
					steady(metrics.RedisMachineMemory, r1, "200")),
				fires("at the machine's memory", steady(metrics.RedisMemory, r1, "190"), steady(metrics.RedisMaxMemory, r1, "0"),
					steady(metrics.RedisMachineMemory, r1, "200")),
				silent("without a limit that is known", steady(metrics.RedisMemory, r1, "90"),
					steady(metrics.RedisMaxMemory, r1, "0"), steady(metrics.RedisMachineMemory, r1, "0")),
				silent("far from both", steady(metrics.RedisMemory, r1, "90"), steady(metrics.RedisMaxMemory, r1, "0"),
					steady(metrics.RedisMachineMemory, r1, "200"))},
			Labels: server},
		replicaLost(l),
		{Code: "packets_withheld", Severity: critical,
			Summary: "A restore withheld packets that users may have won, and no person has decided them",
			Expr:    per("max", "", metrics.WithheldPackets.Name) + " > 0",
			Cases: []Case{fires("until all are decided", steady(metrics.WithheldPackets, "", "17")),
				silent("after the last decision", at(metrics.WithheldPackets, "", "17x20 0x9")),
				silent("if none is withheld", steady(metrics.WithheldPackets, "", "0"))}},
	}
}

// replicaLost returns the rule for a server without the replicas that durability class replica waits for. A server that
// was promoted has no such number yet, so the rule remembers that of the old primary.
func replicaLost(l Limits) Alert {
	const r1 = `server="r:1"`
	server, deployment := "on ("+each("server")+") ", "on ("+whole+") "
	has := per("min", "server", metrics.RedisReplicas.Name)
	replicas := func(values string) [2]string { return at(metrics.RedisReplicas, r1, values) }
	required := func(values string) [2]string { return at(metrics.RequiredReplicas, r1, values) }
	return Alert{Code: "redis_replica_lost", Severity: critical, For: l.Old,
		Summary: "A server of Redis has fewer replicas than durability class replica waits for",
		Expr: has + " < " + server + per("max", "server", metrics.RequiredReplicas.Name) + " or " + has + " == 0 and " +
			deployment + per("max", "", fmt.Sprintf("max_over_time(%s[%s])", metrics.RequiredReplicas.Name, span(l.Gone))) + " > 0",
		Cases: []Case{fires("if one of two is gone", replicas("2x15 1x15"), required("2x30")),
			fires("if the promoted server has none", replicas("1x15 0x15"), required("1x15 0x15")),
			silent("if all are connected", replicas("2x30"), required("2x30")),
			silent("without replicas", replicas("0x30"), required("0x30")),
			silent("during a restart of four minutes", replicas("2x25 1x4"), required("2x30"))},
		Labels: map[string]string{"server": "r:1"}}
}
