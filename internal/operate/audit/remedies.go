package audit

import "strings"

// remedy is the advice for one kind of difference. The report prints it, and docs/audit.md repeats it verbatim; a test
// compares them.
type remedy struct {
	kind Kind
	// means says what happened; do says what to do. do has commands in backquotes, and each of them exists.
	means, do string
	// moves reports whether the remedy pays, refunds or funds. The report leaves such a remedy out while the ledger
	// disagrees with itself: a replay would pay again a grant whose row was deleted.
	moves bool
}

// notWhileUnbalanced replaces a remedy that moves money while the ledger disagrees with itself.
const notWhileUnbalanced = "nothing yet: the remedy moves money, and the ledger does not agree with itself. " +
	"Fix `ledger_unbalanced` and `double_credit` first, then run `hongbao audit` again"

// After Redis went back in time a shard may be frozen. A frozen shard grants nothing, and its campaigns can't be
// paused.
const (
	frozenShard = " (a frozen shard grants nothing and takes no pause: `hongbao recover` shows what to do with it)"
	pause       = "pause the campaign with `hongbao campaign pause ID --why WHY`"
	pauseAtOnce = "pause the campaign at once with `hongbao campaign pause ID --why WHY`"
	pauseOpen   = pause + frozenShard
	pauseShard  = "pause the campaigns of the shard with `hongbao campaign pause ID --why WHY`" + frozenShard
)

// endFrozen replaces the advice to pause a campaign if Redis has lost it. Such a campaign is frozen and can't be
// paused.
var endFrozen = func() *strings.Replacer {
	const end = "end the campaign, which is frozen and takes no pause, with `hongbao campaign refund-lost ID`"
	return strings.NewReplacer(pauseOpen, end, pause, end, pauseAtOnce, end)
}()

// remedies has a remedy for every kind, in the order in which reports show the kinds.
var remedies = []remedy{
	{LedgerUnbalanced, "the ledger does not agree with itself: someone wrote to the database by hand, or it lost rows",
		"stop every `hongbao work` of the sink balance and restore the database from a backup that agrees with itself; then " +
			"`hongbao audit` names what the restored ledger lacks. Move no money before that", false},
	{DoubleCredit, "the ledger has one packet more than once",
		"stop every `hongbao work` of the sink balance: the primary key (campaign, packet) is missing. Restore the database " +
			"from a backup", false},
	{Lost, "granted, the ledger's group has finished it, and the ledger does not have it; or the ledger has recorded it, " +
		"and the remote does not have it",
		"replay these grants, from stream or receipts: `hongbao replay NAME --to balance`. The ledger, or the remote, " +
			"settles each once", true},
	{RemotePaid, "a person dropped the grant's dead letter, decided that it is void, paid it from the reserve, or ended its " +
		"campaign from the ledger, and the remote has paid it: the ledger lacks it",
		"refund nothing of the campaign yet. `hongbao replay NAME --to balance` asks the remote again, and records a grant " +
			"whose letter was dropped. A grant that was decided in quarantine and one of a refunded campaign can't be " +
			"recorded: ask the remote's owners to take the credit back. Until they do, a grant that was paid from the " +
			"reserve is paid twice", true},
	{Unfounded, "the stream, the ledger or the topic has a grant without a receipt",
		"find out whether Redis lost writes. If it did, the packet may be dealt again, so " + pauseOpen + ". Otherwise " +
			"find out who writes to that place", false},
	{Different, "the same packet with another user, amount, shard or seq",
		"compare the versions in the line; the ledger's was paid. If Redis lost writes, the packet was dealt twice: " +
			pauseOpen, false},
	{OverHold, "a user has more packets than the limit allows",
		pause + ": someone wrote to Redis by hand. `hongbao receipts CAMPAIGN " +
			"USER` shows the user's packets", false},
	{PacketTwice, "a packet is in the stock and granted, twice in the stock, or in two receipts",
		pauseAtOnce + ": the packet may be dealt again", false},
	{PacketMissing, "a packet is in neither stock nor receipts, and the stream, the ledger and the topic do not have it",
		pause + ": Redis lost the packet", false},
	{PacketUnknown, "a packet number that the campaign does not have",
		pause + ": its stock is not that of its plan", false},
	{NotPlanned, "an amount that does not follow from seed and specification",
		pause + ": its stock is not that of its plan. The ledger refuses these " +
			"amounts", false},
	{CounterDrift, "the campaign's counts do not match its stock and receipts",
		pause + ": someone wrote to its keys by hand", false},
	{FundingDiffers, "Redis and the ledger disagree on the total, or on the refund",
		pause + ": it was loaded with another specification, or Redis went back " +
			"in time after the refund", false},
	{CampaignMissing, "a campaign is only in Redis, or only in the ledger",
		"if the ledger lacks it, this is another ledger or an older copy: look at `ledger.dsn` with `hongbao config check`, " +
			"and " + pause + ". If Redis lacks it, Redis lost it: do not load it again, " +
			"its packets were dealt; `hongbao campaign refund-lost ID` ends it from the ledger", true},
	{CampaignFrozen, "Redis has lost something of a campaign, so it grants nothing any more; that is also why other " +
		"differences name it",
		"end it from the ledger with `hongbao campaign refund-lost ID`; without an amount it moves nothing and says what is " +
			"left", true},
	{CampaignBroken, "a campaign's keys can't be read, or some of them are missing",
		"someone wrote to its keys by hand, or Redis lost some: " + pauseOpen, false},
	{SeqGap, "some seqs belong to no grant, close or skipped range",
		"Redis lost events: " + pauseShard, false},
	{DuplicateSeq, "two grants have one seq: Redis went back in time",
		pauseShard, false},
	{SeqBeyond, "a receipt has a seq above the shard's last one: Redis went back in time, or someone wrote to its key " +
		"meta",
		"before the seqs are used again, " + pauseShard, false},
	{AfterClose, "a grant after its campaign's close",
		"refund nothing: the close does not count this grant. `hongbao campaign show ID` shows the campaign's state",
		false},
	{StreamGap, "someone deleted events from the stream that a sink has not finished, or wrote them twice",
		"replay these seqs to every sink, from the receipts: `hongbao replay NAME --to balance --shard N --seq FIRST-LAST`, " +
			"and the same with `--to kafka`", true},
	{UnreadableEntry, "an entry of the stream can't be decoded",
		"find out who writes to the stream. The workers made a dead letter of it: `hongbao dead list`", false},
	{GroupMissing, "a shard has events, but not the sink's consumer group",
		"start `hongbao work`: it makes the group and reads from the beginning", false},
	{MissingInTopic, "granted, the topic's group has finished it, and the topic does not have it",
		"replay these grants to the topic: `hongbao replay NAME --to kafka --missing`. For grants that no worker read " +
			"before their entries were deleted: `hongbao replay NAME --to kafka`", false},
	{CodeDiffers, "a coupon's code is missing in Redis, the ledger or the topic, or is not the same everywhere",
		"the ledger's code counts: `hongbao campaign load ID` puts back what Redis lacks. Inform the users who got another " +
			"code from the topic", false},
	{DuplicateInTopic, "the topic has one grant more than once. The likely cause is a rollback of Redis (a restart from " +
		"an older file, a failover that lost writes): the publisher's claim was lost with it, and a worker published the " +
		"grant again",
		"change nothing in the topic: subscribers drop the copy by (shard, seq). Find out whether Redis went back in time, " +
			"and check how it keeps its data with `hongbao config check --connect`. If it did not, find the writer that bypasses " +
			"the publisher",
		false},
	{MalformedRecord, "records claim to be grants of this deployment and can't be read",
		"find out who writes to the topic; `hongbao tail` shows what can be read", false},
	{DeadLetter, "a sink's group gave it up, and the sink does not have it; the reason is in the line",
		"fix the cause, then `hongbao dead requeue`, `hongbao dead confirm` or `hongbao dead drop`", true},
	{InQuarantine, "the ledger refused to pay it, and no one has decided yet",
		"decide with `hongbao quarantine resolve`; docs/ledger.md explains each reason", true},
	{OpenClaim, "a push whose lease is over and whose events are finished: no worker will finish it",
		"requeue the dead letters of its events with `hongbao dead requeue`: the topic's log decides, if it can. If it can't, " +
			"look for the events in the topic where `hongbao claim list` says, and end the claim and its letters with `hongbao " +
			"claim settle`", true},
}

// remedyOf returns the remedy for a kind. found counts all kinds of differences in the report. frozen reports whether
// all differences of the kind belong to campaigns that can't be paused.
func remedyOf(k Kind, found map[Kind]int64, frozen bool) Remedy {
	m := &remedies[kindIndex(k)]
	do, moves := m.do, m.moves
	if frozen {
		do = endFrozen.Replace(do)
		moves = moves || do != m.do
	}
	if moves && found[LedgerUnbalanced]+found[DoubleCredit] > 0 {
		do = notWhileUnbalanced
	}
	return Remedy{m.means, do}
}
