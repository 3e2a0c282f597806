package metrics

var everyProcess = group("Every process", "The metrics of the Go runtime (`go_...`) and of the process (`process_...`) "+
	"are there too.")

// Metrics that every process exports.
var (
	BuildInfo = everyProcess.add(Metric{Name: "hongbao_build_info", Kind: Gauge, Labels: []string{"command", "version"},
		Help: "Always 1: the command that runs, and its version.", Normal: "one version, except during an upgrade"})
	Alarms = everyProcess.add(Metric{Name: "hongbao_alarms_total", Kind: Counter, Labels: []string{"code"},
		Help: "Log lines with this code of docs/alarms.md.", Normal: "does not grow"})
	LedgerSeconds = everyProcess.add(Metric{Name: "hongbao_ledger_transaction_seconds", Kind: Histogram,
		Labels: []string{"kind"}, Buckets: seconds,
		Help:   "Time of a transaction of the ledger with all its waits; kind is read or write.",
		Normal: "99 of 100 writes of a full batch below 0.5 s"})
	LedgerErrors = everyProcess.add(Metric{Name: "hongbao_ledger_errors_total", Kind: Counter,
		Labels: []string{"kind", "class"},
		Help:   "Failed transactions of the ledger, by the class of the error; again: retried after a conflict.",
		Normal: "again now and then; nothing else"})
	KafkaSeconds = everyProcess.add(Metric{Name: "hongbao_kafka_request_seconds", Kind: Histogram,
		Labels: []string{"request"}, Buckets: seconds,
		Help: "Time of a request to Kafka, by its name in Kafka's protocol.", Normal: "99 of 100 Produce below 0.1 s"})
	KafkaErrors = everyProcess.add(Metric{Name: "hongbao_kafka_errors_total", Kind: Counter, Labels: []string{"request"},
		Help: "Requests to Kafka that got no answer.", Normal: "does not grow"})
)

var ofServe = group("hongbao serve", "On `serve.ops_listen`. The balance server, on `balance.ops_listen`, has the two "+
	"`hongbao_http_...` as well.")

// Metrics that the servers export.
var (
	Grabs = ofServe.add(Metric{Name: "hongbao_grabs_total", Kind: Counter, Labels: []string{"outcome"},
		Help:   "Grabs by result: an outcome of docs/http.md, or error_ and the class of the error.",
		Normal: "mostly sold_out in a rain; few busy, frozen and refilling; no error_"})
	GrabSeconds = ofServe.add(Metric{Name: "hongbao_grab_seconds", Kind: Histogram, Buckets: seconds,
		Help: "Time from a grab to its answer, without HTTP. Exemplars have the trace id.", Normal: "99 of 100 below 0.1 s"})
	Calls = ofServe.add(Metric{Name: "hongbao_grab_calls_total", Kind: Counter, Labels: []string{"result"},
		Help: "Calls of the grab script: ok, or the class of the error after all repeats.", Normal: "ok only"})
	CallSeconds = ofServe.add(Metric{Name: "hongbao_grab_call_seconds", Kind: Histogram, Buckets: seconds,
		Help:   "Time of a call of the grab script with its repeats, and with the wait for a replica or the disk.",
		Normal: "99 of 100 below 0.025 s with durability fast"})
	CallGrabs = ofServe.add(Metric{Name: "hongbao_grab_call_grabs", Kind: Histogram, Buckets: calls,
		Help: "Grabs of one call of the grab script.", Normal: "1 when idle, up to 128 in a rain"})
	CampaignLeft = ofServe.add(Metric{Name: "hongbao_campaign_left_packets", Kind: Gauge, Labels: []string{"campaign"},
		Help:   "Packets left, of the campaigns with the latest grabs on this server, at most ops.campaigns.",
		Normal: "falls to 0 in a rain"})
	Unfinished = ofServe.add(Metric{Name: "hongbao_ledger_unfinished", Kind: Gauge, Labels: []string{"kind"},
		Help: "Work in the ledger that waits for a worker: top_ups not in Redis yet, and credits that may have been requested " +
			"from the remote. Absent while the ledger does not answer, and without ledger.dsn.",
		Normal: "0; credits in a rain"})
	Remembered = ofServe.add(Metric{Name: "hongbao_grants_remembered_bytes", Kind: Gauge,
		Help: "Memory for the grants that this process reported to users and the ledger may lack: it sends them if Redis " +
			"loses them.", Normal: "0 at rest; some MB in a rain, below 64 MiB"})
	Forgotten = ofServe.add(Metric{Name: "hongbao_grants_forgotten_total", Kind: Counter,
		Help: "Grants that this process reported to users and forgot before it knew that the ledger has them: after a " +
			"minute, or above 64 MiB. If Redis loses them now, packets are withheld.",
		Normal: "does not grow, except in the minute after a shard was opened again"})
	HTTPRequests = ofServe.add(Metric{Name: "hongbao_http_requests_total", Kind: Counter,
		Labels: []string{"route", "status"}, Help: "Requests by route (the pattern of the path) and status of the response.",
		Normal: "200, some 429; 503 only for a short time"})
	HTTPSeconds = ofServe.add(Metric{Name: "hongbao_http_request_seconds", Kind: Histogram, Labels: []string{"route"},
		Buckets: seconds, Help: "Time of a request from its head to the end of the handler.",
		Normal: "99 of 100 grabs below 0.1 s"})
	Connections = ofServe.add(Metric{Name: "hongbao_http_connections", Kind: Gauge, Labels: []string{"listener"},
		Help:   "Open connections by the knob of the listener: listen, control_listen, ops_listen.",
		Normal: "well below serve.connections"})
)

var ofWork = group("hongbao work", "On `work.ops_listen`. Each process counts only its own work: add up the values.")

// Metrics that workers export.
var (
	SinkShards = ofWork.add(Metric{Name: "hongbao_worker_shards", Kind: Gauge, Labels: []string{"sink", "code"},
		Help:   "Shards of this worker by state: working, or a code of docs/alarms.md.",
		Normal: "all are working"})
	WorkerLastStep = ofWork.add(Metric{Name: "hongbao_worker_last_step_timestamp_seconds", Kind: Gauge,
		Labels: []string{"sink", "shard"}, Help: "When this worker last did something on the shard, in Unix time: a read, a " +
			"bounded wait, the start or the end of a call of the handler. Absent while the worker opens the sink.",
		Normal: "seconds ago; up to consumer.handle_timeout ago in a slow call"})
	SinkResults = ofWork.add(Metric{Name: "hongbao_worker_attempts_total", Kind: Counter,
		Labels: []string{"sink", "shard", "result"},
		Help: "Attempts to deliver a grant to the sink, one for each grant of a call: done, held (another worker has it), " +
			"outage (the sink is down; counts as no attempt), or the class of the error.",
		Normal: "done only"})
	SinkSeconds = ofWork.add(Metric{Name: "hongbao_worker_batch_seconds", Kind: Histogram, Labels: []string{"sink"},
		Buckets: seconds, Help: "Time of one call of the sink's handler. Exemplars have the trace id.",
		Normal: "99 of 100 below 0.5 s"})
	SinkGrants = ofWork.add(Metric{Name: "hongbao_worker_batch_grants", Kind: Histogram, Labels: []string{"sink"},
		Buckets: grants, Help: "Grants of one call of the sink's handler.", Normal: "up to consumer.batch_grants in a rain"})
	WorkerDone = ofWork.add(Metric{Name: "hongbao_worker_done_grants_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Grants that this worker finished and acked.", Normal: "follows the grants of hongbao_shard_events"})
	WorkerDead = ofWork.add(Metric{Name: "hongbao_worker_dead_letters_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Dead letters written.", Normal: "does not grow"})
	WorkerParked = ofWork.add(Metric{Name: "hongbao_worker_parked_entries_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Entries parked for a later attempt.", Normal: "does not grow"})
	WorkerHanded = ofWork.add(Metric{Name: "hongbao_worker_handed_back_entries_total", Kind: Counter,
		Labels: []string{"sink"}, Help: "Entries handed to other workers.", Normal: "grows when a worker stops"})
	WorkerTaken = ofWork.add(Metric{Name: "hongbao_worker_reclaimed_entries_total", Kind: Counter,
		Labels: []string{"sink"}, Help: "Entries reclaimed: parked ones, or those of a dead worker.",
		Normal: "grows after a worker died"})
	WorkerSkipped = ofWork.add(Metric{Name: "hongbao_worker_skipped_grants_total", Kind: Counter,
		Labels: []string{"sink"}, Help: "Grants delivered again after the sink finished them.", Normal: "grows after a worker died"})
	WorkerOutages = ofWork.add(Metric{Name: "hongbao_worker_outages_total", Kind: Counter, Labels: []string{"sink"},
		Help: "How often a shard of this worker found the sink down.", Normal: "does not grow"})
	WorkerLeases = ofWork.add(Metric{Name: "hongbao_worker_lost_leases_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Batches that were cancelled because another worker may have them.", Normal: "does not grow"})
	WorkerIncidents = ofWork.add(Metric{Name: "hongbao_worker_incidents_total", Kind: Counter,
		Labels: []string{"sink", "code"},
		Help: "Incidents by their code of docs/alarms.md: entries that no grab and no close wrote (forged_entry), entries " +
			"deleted while workers had them (events_lost), groups that were missing and created again (group_vanished).",
		Normal: "does not grow"})
	RemoteBreaker = ofWork.add(Metric{Name: "hongbao_remote_breaker_open", Kind: Gauge, Labels: []string{"sink"},
		Help: "1 if the circuit breaker stops this worker's requests to the remote: after remote.breaker_failures failures " +
			"in a row, until one request succeeds. Absent without settlement.kind remote.",
		Normal: "0"})
	PublishBatches = ofWork.add(Metric{Name: "hongbao_publish_batches_total", Kind: Counter,
		Help: "Batches that this worker sent and completed.", Normal: "grows with the grants"})
	PublishResends = ofWork.add(Metric{Name: "hongbao_publish_resends_total", Kind: Counter,
		Help: "Requests that repeated the bytes of an earlier one.", Normal: "grows when a broker moves"})
	PublishTaken = ofWork.add(Metric{Name: "hongbao_publish_taken_over_claims_total", Kind: Counter,
		Help: "Open claims found and taken over, including this worker's own.", Normal: "grows after a worker died"})
)

var ofState = group("The state of the deployment", "`hongbao serve` and `hongbao work` ask Redis when they are scraped, "+
	"at most once in `ops.poll`, and all report the same: take the maximum, never the sum. The values of a server of "+
	"Redis are absent while it does not answer.")

// Metrics that are read from Redis.
var (
	StateUp = ofState.add(Metric{Name: "hongbao_state_up", Kind: Gauge,
		Help: "1 if all servers of Redis answer, otherwise 0. The values of a server without an answer are absent.", Normal: "1"})
	StateSeconds = ofState.add(Metric{Name: "hongbao_state_seconds", Kind: Gauge,
		Help: "How long it took to read the state.", Normal: "below 0.5"})
	LagGrants = ofState.add(Metric{Name: "hongbao_sink_lag_grants", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Grants and closes that the sink has not finished.", Normal: "0; thousands in a rain, for seconds"})
	LagSeconds = ofState.add(Metric{Name: "hongbao_sink_lag_seconds", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Age of the first entry that no worker has read; 0 if all are read.", Normal: "below 1"})
	OldestSeconds = ofState.add(Metric{Name: "hongbao_sink_oldest_seconds", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Age of the first unfinished entry of the sink, including unread and parked entries.", Normal: "below 2"})
	PendingEntries = ofState.add(Metric{Name: "hongbao_sink_pending_entries", Kind: Gauge,
		Labels: []string{"sink", "shard"}, Help: "Entries that workers have in hand.", Normal: "below 1,000 a worker"})
	ParkedEntries = ofState.add(Metric{Name: "hongbao_sink_parked_entries", Kind: Gauge,
		Labels: []string{"sink", "shard", "level"},
		Help:   "Entries that wait for another attempt, by level: the pause doubles with each level.",
		Normal: "0"})
	DeadLetters = ofState.add(Metric{Name: "hongbao_sink_dead_letters", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Dead letters that wait for a person.", Normal: "0"})
	OpenClaims = ofState.add(Metric{Name: "hongbao_sink_claims", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Open claims: batches that are on their way, or whose worker died.", Normal: "0 or 1 a shard"})
	Workers = ofState.add(Metric{Name: "hongbao_sink_workers", Kind: Gauge, Labels: []string{"sink"},
		Help: "Workers of the sink that asked Redis for something within consumer.lease.", Normal: "as many as you run"})
	SinkPaused = ofState.add(Metric{Name: "hongbao_sink_paused", Kind: Gauge, Labels: []string{"sink"},
		Help: "1 if somebody has paused the sink, on any shard.", Normal: "0"})
	ShardOpen = ofState.add(Metric{Name: "hongbao_shard_open", Kind: Gauge, Labels: []string{"shard"},
		Help: "1 if the shard is open on its server of Redis, 0 if it is frozen or missing.", Normal: "1"})
	ShardEvents = ofState.add(Metric{Name: "hongbao_shard_events", Kind: Gauge, Labels: []string{"shard"},
		Help: "Number of the shard's last event. Each grant is one.", Normal: "grows, and never falls"})
	RedisMemory = ofState.add(Metric{Name: "hongbao_redis_memory_bytes", Kind: Gauge, Labels: []string{"server"},
		Help: "Memory that Redis uses.", Normal: "below 70 % of hongbao_redis_max_memory_bytes"})
	RedisMaxMemory = ofState.add(Metric{Name: "hongbao_redis_max_memory_bytes", Kind: Gauge, Labels: []string{"server"},
		Help: "maxmemory of Redis; 0 for no bound.", Normal: "set"})
	RedisPersists = ofState.add(Metric{Name: "hongbao_redis_append_only", Kind: Gauge, Labels: []string{"server"},
		Help: "1 if Redis writes an append-only file.", Normal: "1"})
	RedisWrites = ofState.add(Metric{Name: "hongbao_redis_writes_ok", Kind: Gauge, Labels: []string{"server"},
		Help:   "1 if the last write and the last rewrite of Redis' files succeeded.",
		Normal: "1"})
	RedisKeeps = ofState.add(Metric{Name: "hongbao_redis_noeviction", Kind: Gauge, Labels: []string{"server"},
		Help: "1 if maxmemory-policy is noeviction.", Normal: "1"})
	RedisReplicas = ofState.add(Metric{Name: "hongbao_redis_replicas", Kind: Gauge, Labels: []string{"server"},
		Help: "Replicas that are connected.", Normal: "as many as you run"})
	AuditAgrees = ofState.add(Metric{Name: "hongbao_audit_agrees", Kind: Gauge,
		Help:   "1 if the last whole `hongbao audit` found no difference, 0 if it found one. Absent before the first.",
		Normal: "1"})
	AuditDifferences = ofState.add(Metric{Name: "hongbao_audit_differences", Kind: Gauge,
		Help: "Differences that the last whole audit found.", Normal: "0"})
	AuditTime = ofState.add(Metric{Name: "hongbao_audit_timestamp_seconds", Kind: Gauge,
		Help: "When the last whole audit began, in Unix time.", Normal: "less than a day ago"})
)
