package metrics

var everyProcess = group("Every process", "Every process also exports the metrics of the Go runtime (`go_...`) and "+
	"of the process (`process_...`).")

// Metrics that every process exports.
var (
	BuildInfo = everyProcess.add(Metric{Name: "hongbao_build_info", Kind: Gauge, Labels: []string{"command", "version"},
		Help: "Always 1. The labels name the command that runs, and its version.", Normal: "one version, except during an " +
			"upgrade"})
	Alarms = everyProcess.add(Metric{Name: "hongbao_alarms_total", Kind: Counter, Labels: []string{"code"},
		Help: "Number of log lines with this code; docs/alarms.md explains each code.", Normal: "does not grow"})
	CertificateEnds = everyProcess.add(Metric{Name: "hongbao_certificate_expiry_timestamp_seconds", Kind: Gauge,
		Labels: []string{"knob"}, Help: "Unix time at which the certificate of this knob expires. Each scrape reads changed " +
			"files. Absent without certificates.",
		Normal: "more than a week ahead"})
	UnsafeAllow = everyProcess.add(Metric{Name: "hongbao_unsafe_allow", Kind: Gauge, Labels: []string{"check"},
		Help: "Always 1, for each check that unsafe.allow switches off.", Normal: "absent"})
	AuditMaxAge = everyProcess.add(Metric{Name: "hongbao_audit_max_age_seconds", Kind: Gauge,
		Help:   "The setting ops.audit_max_age. The alert audit_old compares it with the age of the last audit.",
		Normal: "the interval of the audits, plus a margin"})
	LedgerSeconds = everyProcess.add(Metric{Name: "hongbao_ledger_transaction_seconds", Kind: Histogram,
		Labels: []string{"kind"}, Buckets: seconds,
		Help:   "Seconds that a transaction of the ledger took, with all its waits. The label kind is read or write.",
		Normal: "99 of 100 writes of a full batch take less than 0.5 s"})
	LedgerErrors = everyProcess.add(Metric{Name: "hongbao_ledger_errors_total", Kind: Counter,
		Labels: []string{"kind", "class"},
		Help: "Number of failed transactions of the ledger, by the class of the error. The class again means that the " +
			"ledger repeated the transaction, because it conflicted with another one.",
		Normal: "the class again grows now and then; no other class grows"})
	KafkaSeconds = everyProcess.add(Metric{Name: "hongbao_kafka_request_seconds", Kind: Histogram,
		Labels: []string{"request"}, Buckets: seconds,
		Help:   "Seconds that a request to Kafka took, by the request's name in Kafka's protocol.",
		Normal: "99 of 100 requests Produce take less than 0.1 s"})
	KafkaErrors = everyProcess.add(Metric{Name: "hongbao_kafka_errors_total", Kind: Counter, Labels: []string{"request"},
		Help: "Number of requests to Kafka that got no answer.", Normal: "does not grow"})
)

var ofServe = group("hongbao serve", "Exported on `serve.ops_listen`. `hongbao control` and the balance server also export "+
	"`hongbao_http_requests_total`, `hongbao_http_request_seconds` and `hongbao_key_expiry_timestamp_seconds`, on "+
	"`control.ops_listen` and `balance.ops_listen`.")

// Metrics that the servers export.
var (
	Grabs = ofServe.add(Metric{Name: "hongbao_grabs_total", Kind: Counter, Labels: []string{"outcome"},
		Help: "Number of grabs by result: an outcome of docs/http.md, error_ with the class of the error, or " +
			"error_canceled if the caller hung up before the answer. The class permanent is a mistake of the caller.",
		Normal: "mostly sold_out in a rush; few busy, frozen and refilling; no error_ except canceled and permanent"})
	GrabSeconds = ofServe.add(Metric{Name: "hongbao_grab_seconds", Kind: Histogram, Buckets: seconds,
		Help:   "Seconds from a grab to its answer, without the time for HTTP. Exemplars have the trace id.",
		Normal: "99 of 100 grabs take less than 0.1 s"})
	Calls = ofServe.add(Metric{Name: "hongbao_grab_calls_total", Kind: Counter, Labels: []string{"result"},
		Help:   "Number of calls of the grab script by result: ok, or the class of the error after all repeats.",
		Normal: "only ok grows"})
	CallSeconds = ofServe.add(Metric{Name: "hongbao_grab_call_seconds", Kind: Histogram, Buckets: seconds,
		Help:   "Seconds that a call of the grab script took, with its repeats and the wait for a replica or the disk.",
		Normal: "with durability fast, 99 of 100 calls take less than 0.025 s"})
	CallGrabs = ofServe.add(Metric{Name: "hongbao_grab_call_grabs", Kind: Histogram, Buckets: calls,
		Help: "Number of grabs in one call of the grab script.", Normal: "1 when few users grab, up to 128 in a rush"})
	CampaignLeft = ofServe.add(Metric{Name: "hongbao_campaign_left_packets", Kind: Gauge, Labels: []string{"campaign"},
		Help: "Number of packets that no user has got yet, for the campaigns with the latest grabs on this server, at " +
			"most ops.campaigns campaigns.",
		Normal: "falls to 0 in a rush"})
	Remembered = ofServe.add(Metric{Name: "hongbao_grants_remembered_bytes", Kind: Gauge,
		Help: "Bytes of memory for the grants that this process reported to users and that the ledger may lack. If Redis " +
			"loses such a grant, the process sends it to Redis.",
		Normal: "0 without grabs; some MB in a rush; always below 64 MiB"})
	Forgotten = ofServe.add(Metric{Name: "hongbao_grants_forgotten_total", Kind: Counter,
		Help: "Number of grants that this process reported to users, and forgot before it knew that the ledger has them. " +
			"It forgets a grant after a minute, or above 64 MiB. If Redis then loses the grant, the restore withholds " +
			"packets.",
		Normal: "does not grow, except in the minute after a shard was opened again"})
	HTTPRequests = ofServe.add(Metric{Name: "hongbao_http_requests_total", Kind: Counter,
		Labels: []string{"listener", "route", "status"},
		Help: "Number of requests, by the knob of the listener (listen: users and gateways, or clients of the balance " +
			"server; control: administration and console), route (the pattern of the path) and status of the response.",
		Normal: "mostly 200, some 429; 503 only for a short time"})
	HTTPSeconds = ofServe.add(Metric{Name: "hongbao_http_request_seconds", Kind: Histogram,
		Labels: []string{"listener", "route"}, Buckets: seconds,
		Help: "Seconds from the arrival of a request's head to the end of its handler, without the event streams of the " +
			"console's live pages.",
		Normal: "99 of 100 grabs take less than 0.1 s"})
	KeyEnds = ofServe.add(Metric{Name: "hongbao_key_expiry_timestamp_seconds", Kind: Gauge, Labels: []string{"role"},
		Help: "Unix time at which the next API key of the role expires, also if no one uses that key. Keys without an end, " +
			"and keys that were made for a week or less, do not count. Absent without ledger.dsn.",
		Normal: "more than a week ahead"})
	Connections = ofServe.add(Metric{Name: "hongbao_http_connections", Kind: Gauge, Labels: []string{"listener"},
		Help:   "Number of open connections, by the knob of the listener of hongbao serve: listen or ops_listen.",
		Normal: "well below serve.connections"})
)

var ofWork = group("hongbao work", "Exported on `work.ops_listen`. Each process counts only its own work, so add up "+
	"the values of all workers.")

// Metrics that workers export.
var (
	SinkShards = ofWork.add(Metric{Name: "hongbao_worker_shards", Kind: Gauge, Labels: []string{"sink", "code"},
		Help:   "Number of shards of this worker, by state: working, or a code of docs/alarms.md.",
		Normal: "all shards are working"})
	WorkerLastStep = ofWork.add(Metric{Name: "hongbao_worker_last_step_timestamp_seconds", Kind: Gauge,
		Labels: []string{"sink", "shard"}, Help: "Unix time of this worker's last step on the shard. A step is a read, a " +
			"wait with a time limit, or the start or the end of a call of the handler. Absent while the worker opens the " +
			"sink.",
		Normal: "seconds ago; during a slow call up to consumer.handle_timeout ago"})
	SinkResults = ofWork.add(Metric{Name: "hongbao_worker_attempts_total", Kind: Counter,
		Labels: []string{"sink", "shard", "result"},
		Help: "Number of attempts to deliver a grant to the sink, by result. done: the sink has taken it. waiting: another " +
			"worker has it. outage: the sink is down, which uses up no attempt. Other results are the class of the error.",
		Normal: "only done grows"})
	SinkSeconds = ofWork.add(Metric{Name: "hongbao_worker_batch_seconds", Kind: Histogram, Labels: []string{"sink"},
		Buckets: seconds, Help: "Seconds that one call of the sink's handler took. Exemplars have the trace id.",
		Normal: "99 of 100 calls take less than 0.5 s"})
	SinkGrants = ofWork.add(Metric{Name: "hongbao_worker_batch_grants", Kind: Histogram, Labels: []string{"sink"},
		Buckets: grants, Help: "Number of grants in one call of the sink's handler.",
		Normal: "in a rush up to consumer.batch_grants"})
	WorkerDone = ofWork.add(Metric{Name: "hongbao_worker_done_grants_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Number of grants that this worker finished and acked.", Normal: "grows like hongbao_shard_events"})
	WorkerDead = ofWork.add(Metric{Name: "hongbao_worker_dead_letters_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Number of dead letters that this worker wrote.", Normal: "does not grow"})
	WorkerParked = ofWork.add(Metric{Name: "hongbao_worker_parked_entries_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Number of entries that this worker parked until a later attempt.", Normal: "does not grow"})
	WorkerHanded = ofWork.add(Metric{Name: "hongbao_worker_handed_back_entries_total", Kind: Counter,
		Labels: []string{"sink"}, Help: "Number of entries that this worker gave back for other workers.", Normal: "grows " +
			"when a worker stops"})
	WorkerTaken = ofWork.add(Metric{Name: "hongbao_worker_reclaimed_entries_total", Kind: Counter,
		Labels: []string{"sink"}, Help: "Number of entries that this worker reclaimed: parked entries, or entries of a " +
			"dead worker.",
		Normal: "grows after a worker died"})
	WorkerSkipped = ofWork.add(Metric{Name: "hongbao_worker_skipped_grants_total", Kind: Counter,
		Labels: []string{"sink"}, Help: "Number of grants that came again after the sink had finished them. The worker " +
			"skips them.",
		Normal: "grows after a worker died"})
	WorkerOutages = ofWork.add(Metric{Name: "hongbao_worker_outages_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Number of times that a shard of this worker found the sink down.", Normal: "does not grow"})
	WorkerLeases = ofWork.add(Metric{Name: "hongbao_worker_lost_leases_total", Kind: Counter, Labels: []string{"sink"},
		Help: "Number of batches that this worker cancelled, because another worker may have their entries.", Normal: "does " +
			"not grow"})
	WorkerIncidents = ofWork.add(Metric{Name: "hongbao_worker_incidents_total", Kind: Counter,
		Labels: []string{"sink", "code"},
		Help: "Number of incidents by their code of docs/alarms.md. forged_entry: an entry that no grab and no close " +
			"wrote. events_lost: an entry that was deleted while a worker had it. group_vanished: a group that was missing " +
			"and that the worker created again.",
		Normal: "does not grow"})
	RemoteBreaker = ofWork.add(Metric{Name: "hongbao_remote_breaker_open", Kind: Gauge, Labels: []string{"sink"},
		Help: "1 if the circuit breaker stops this worker's requests to the remote, or to a webhook. It stops them after " +
			"breaker_failures failures in a row, until one request succeeds. Absent for other sinks.",
		Normal: "0"})
	PublishBatches = ofWork.add(Metric{Name: "hongbao_publish_batches_total", Kind: Counter,
		Help: "Number of batches that this worker sent to the topic and completed.", Normal: "grows with the grants"})
	PublishResends = ofWork.add(Metric{Name: "hongbao_publish_resends_total", Kind: Counter,
		Help:   "Number of requests to Kafka that repeated the bytes of an earlier request.",
		Normal: "grows when a partition gets another leader"})
	PublishTaken = ofWork.add(Metric{Name: "hongbao_publish_taken_over_claims_total", Kind: Counter,
		Help: "Number of open claims that this worker found and took over, including its own earlier claims.", Normal: "grows after a worker died"})
)

var ofState = group("The state of the deployment", "`hongbao control` (and `hongbao serve --control`) and `hongbao work` ask Redis and the "+
	"ledger when they are scraped, at most once in `ops.poll`. All of them report the same values: take the maximum, never the sum. While "+
	"a server of Redis does not answer, its values are absent.")

// Metrics that are read from Redis.
var (
	StateUp = ofState.add(Metric{Name: "hongbao_state_up", Kind: Gauge,
		Help: "1 if all servers of Redis answer, otherwise 0. The values of a server without an answer are absent.", Normal: "1"})
	StateSeconds = ofState.add(Metric{Name: "hongbao_state_seconds", Kind: Gauge,
		Help: "Seconds that the last reading of the state took.", Normal: "below 0.5"})
	LagGrants = ofState.add(Metric{Name: "hongbao_sink_lag_grants", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help:   "Number of grants and closes that the sink has not finished.",
		Normal: "0; for some seconds thousands in a rush"})
	LagSeconds = ofState.add(Metric{Name: "hongbao_sink_lag_seconds", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Age in seconds of the first entry that no worker has read; 0 if all are read.", Normal: "below 1"})
	OldestSeconds = ofState.add(Metric{Name: "hongbao_sink_oldest_seconds", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Age in seconds of the first entry that the sink has not finished, including unread and parked entries.", Normal: "below 2"})
	PendingEntries = ofState.add(Metric{Name: "hongbao_sink_pending_entries", Kind: Gauge,
		Labels: []string{"sink", "shard"}, Help: "Number of entries that workers have read and not acked.",
		Normal: "below 1,000 for each worker"})
	ParkedEntries = ofState.add(Metric{Name: "hongbao_sink_parked_entries", Kind: Gauge,
		Labels: []string{"sink", "shard", "level"},
		Help: "Number of entries that wait for another attempt, by level. The wait doubles with each level. On level " +
			"\"paused\" are entries of campaigns that are paused for the sink.",
		Normal: "0"})
	DeadLetters = ofState.add(Metric{Name: "hongbao_sink_dead_letters", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help: "Number of dead letters that wait for a person's decision.", Normal: "0"})
	OpenClaims = ofState.add(Metric{Name: "hongbao_sink_claims", Kind: Gauge, Labels: []string{"sink", "shard"},
		Help:   "Number of open claims: batches that a worker is sending, or whose worker died.",
		Normal: "0 or 1 for each shard"})
	Workers = ofState.add(Metric{Name: "hongbao_sink_workers", Kind: Gauge, Labels: []string{"sink"},
		Help: "Number of workers of the sink that have called Redis within consumer.lease.", Normal: "as many as you run"})
	SinkPaused = ofState.add(Metric{Name: "hongbao_sink_paused", Kind: Gauge, Labels: []string{"sink"},
		Help: "1 if a person has paused the sink on at least one shard, else 0.", Normal: "0"})
	SinkRate = ofState.add(Metric{Name: "hongbao_sink_rate_limit", Kind: Gauge, Labels: []string{"sink"},
		Help:   "The most grants that all workers of the sink together deliver in a second; 0 for no limit.",
		Normal: "0, or what the sink can take"})
	SinkPausedCampaigns = ofState.add(Metric{Name: "hongbao_sink_paused_campaigns", Kind: Gauge,
		Labels: []string{"sink", "by"},
		Help:   "Number of campaigns that are paused for the sink, by the one that paused them: worker or person.",
		Normal: "0"})
	ShardOpen = ofState.add(Metric{Name: "hongbao_shard_open", Kind: Gauge, Labels: []string{"shard"},
		Help: "1 if the shard is open on its server of Redis, 0 if it is frozen or missing.", Normal: "1"})
	ShardEvents = ofState.add(Metric{Name: "hongbao_shard_events", Kind: Gauge, Labels: []string{"shard"},
		Help: "Seq of the shard's newest event. Each grant is an event.", Normal: "grows, and never falls"})
	RedisMemory = ofState.add(Metric{Name: "hongbao_redis_memory_bytes", Kind: Gauge, Labels: []string{"server"},
		Help:   "Bytes of memory that the server of Redis uses. The label server is its address, or primary if sentinels name it.",
		Normal: "below 70 % of hongbao_redis_max_memory_bytes"})
	RedisMaxMemory = ofState.add(Metric{Name: "hongbao_redis_max_memory_bytes", Kind: Gauge, Labels: []string{"server"},
		Help: "The setting maxmemory of the server of Redis, in bytes; 0 for no limit.", Normal: "above 0"})
	RedisMachineMemory = ofState.add(Metric{Name: "hongbao_redis_machine_memory_bytes", Kind: Gauge,
		Labels: []string{"server"},
		Help: "Bytes of memory of the machine of the server of Redis, as Redis reports it (total_system_memory). In a " +
			"container it is the memory of the host, not the limit of the container. 0 if Redis does not report it.",
		Normal: "above hongbao_redis_max_memory_bytes"})
	RedisPersists = ofState.add(Metric{Name: "hongbao_redis_append_only", Kind: Gauge, Labels: []string{"server"},
		Help: "1 if the server of Redis writes an append-only file, else 0.", Normal: "1"})
	RedisWrites = ofState.add(Metric{Name: "hongbao_redis_writes_ok", Kind: Gauge, Labels: []string{"server"},
		Help:   "1 if the last write and the last rewrite of Redis' files succeeded, else 0.",
		Normal: "1"})
	RedisKeeps = ofState.add(Metric{Name: "hongbao_redis_noeviction", Kind: Gauge, Labels: []string{"server"},
		Help: "1 if the setting maxmemory-policy of Redis is noeviction, else 0.", Normal: "1"})
	RedisReplicas = ofState.add(Metric{Name: "hongbao_redis_replicas", Kind: Gauge, Labels: []string{"server"},
		Help: "Number of replicas that are connected to the server of Redis.", Normal: "as many as you run"})
	RequiredReplicas = ofState.add(Metric{Name: "hongbao_redis_required_replicas", Kind: Gauge, Labels: []string{"server"},
		Help: "Number of replicas that durability class replica waits for: producer.replicas, or the most that the server " +
			"has had since its shards were opened there.",
		Normal: "at most hongbao_redis_replicas"})
	AuditAgrees = ofState.add(Metric{Name: "hongbao_audit_agrees", Kind: Gauge,
		Help:   "1 if the last `hongbao audit` of all campaigns found no difference, else 0. Absent before the first audit.",
		Normal: "1"})
	AuditDifferences = ofState.add(Metric{Name: "hongbao_audit_differences", Kind: Gauge,
		Help: "Number of differences that the last audit of all campaigns found.", Normal: "0"})
	AuditDeadLetters = ofState.add(Metric{Name: "hongbao_audit_dead_letters", Kind: Gauge,
		Help:   "Number of these differences that are dead letters. Their alert is dead_letter, not audit_differs.",
		Normal: "0"})
	AuditTime = ofState.add(Metric{Name: "hongbao_audit_timestamp_seconds", Kind: Gauge,
		Help: "Unix time at which the last audit of all campaigns began.", Normal: "less than a day ago"})
	Unfinished = ofState.add(Metric{Name: "hongbao_ledger_unfinished", Kind: Gauge, Labels: []string{"kind"},
		Help: "Work in the ledger that waits for a worker. Kind top_ups counts top-ups that are not in Redis yet. Kind " +
			"credits counts credits that were perhaps requested from the remote. Absent without ledger.dsn, and while the " +
			"ledger does not answer.",
		Normal: "0; credits rise in a rush"})
	UnfinishedSeconds = ofState.add(Metric{Name: "hongbao_ledger_unfinished_oldest_seconds", Kind: Gauge,
		Labels: []string{"kind"},
		Help:   "Age in seconds of the oldest unfinished work of the kind; 0 if there is none.", Normal: "below 60"})
	UnrefundedSeconds = ofState.add(Metric{Name: "hongbao_ledger_unrefunded_oldest_seconds", Kind: Gauge,
		Help: "Seconds since the end of the window of the campaign that has waited longest for its refund; 0 if there is none. " +
			"Read once a minute. Absent without ledger.dsn, and while the ledger does not answer.",
		Normal: "below 86400"})
	WithheldPackets = ofState.add(Metric{Name: "hongbao_withheld_packets", Kind: Gauge,
		Help: "Number of packets of open and paused campaigns that a restore withheld, and that no person has decided: " +
			"`hongbao hole list` lists them. Absent without ledger.dsn, and while the ledger or Redis does not answer.",
		Normal: "0"})
	JournalWaits = ofState.add(Metric{Name: "hongbao_journal_waiting_entries", Kind: Gauge,
		Help:   "Number of entries of the journal that wait in Redis for the ledger. Absent while Redis does not answer.",
		Normal: "0; grows while the ledger is down"})
	PausedCampaigns = ofState.add(Metric{Name: "hongbao_ledger_paused_campaigns", Kind: Gauge,
		Help: "Number of campaigns that workers have paused because of a wrong grant, and that no person has resumed. " +
			"Absent without ledger.dsn, and while the ledger does not answer.",
		Normal: "0"})
)
