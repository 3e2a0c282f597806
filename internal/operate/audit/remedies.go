package audit

import "strings"
import "github.com/hongbao-project/hongbao/internal/model"

// remedy is the advice for one kind of difference. The report prints it, and docs/audit.md repeats it verbatim; a test
// compares them.
type remedy struct {
	kind model.DifferenceKind
	// means says what happened; do says what to do. do has commands in backquotes, and each of them exists.
	means, do string
	// moves reports whether the remedy pays, refunds or funds. The report leaves such a remedy out while the ledger
	// disagrees with itself: a replay would pay again a grant whose row was deleted.
	moves bool
}

// notWhileUnbalanced replaces a remedy that moves money while the ledger disagrees with itself.
const notWhileUnbalanced = "nothing yet: the remedy moves money, and the ledger contradicts itself. Fix " +
	"`ledger_unbalanced` and `double_credit` first, then run `hongbao audit` again"

// After Redis went back in time a shard may be frozen. A frozen shard grants nothing, and its campaigns can't be
// paused.
const (
	frozenShard = " (on a frozen shard nothing is granted and no campaign can be paused: `hongbao recover` shows what " +
		"to do)"
	pause       = "pause the campaign with `hongbao campaign pause ID --by NAME --why TEXT`"
	pauseAtOnce = "pause the campaign at once with `hongbao campaign pause ID --by NAME --why TEXT`"
	pauseOpen   = pause + frozenShard
	pauseShard  = "pause the campaigns of the shard with `hongbao campaign pause ID --by NAME --why TEXT`" + frozenShard
)

// endFrozen replaces the advice to pause a campaign if Redis has lost it. Such a campaign is frozen and can't be
// paused.
var endFrozen = func() *strings.Replacer {
	const end = "end the campaign, which is frozen and can't be paused, with `hongbao campaign refund-lost ID`"
	return strings.NewReplacer(pauseOpen, end, pause, end, pauseAtOnce, end)
}()

// remedies has a remedy for every kind, in the order in which reports show the kinds.
var remedies = []remedy{
	{LedgerUnbalanced, "the ledger contradicts itself: someone wrote to the database by hand, or the database lost rows",
		"stop every `hongbao work` of the sink balance. Restore the database from a backup without this difference. Then " +
			"`hongbao audit` names what the restored ledger lacks. Move no money before that", false},
	{DoubleCredit, "the ledger has paid one packet more than once",
		"stop every `hongbao work` of the sink balance: the database has lost the primary key (campaign, packet). Restore " +
			"the database from a backup", false},
	{Lost, "sink balance has finished a grant, and the ledger does not have it. Or the ledger has recorded a grant, and " +
		"the remote does not have it",
		"if the ledger lacks them, deliver them again, from the stream or the receipts: `hongbao replay NAME --to " +
			"balance --missing`. If the ledger was restored from a backup, read docs/disaster.md first. If the remote " +
			"lacks one, request it again with the same key: `hongbao replay NAME --to balance --campaign CAMPAIGN " +
			"--shard N --seq FIRST-LAST`. Once `remote.retention`, counted from the grab, is over, the replay only " +
			"queries: then the remote's owners have to book the credit under its reference. The ledger, or the remote, " +
			"settles each grant once", true},
	{RemotePaid, "the remote has paid a grant that the ledger lacks. A person had dropped the grant's dead letter, " +
		"voided the grant, paid it from the reserve, or ended its campaign from the ledger",
		"do not refund the campaign yet. `hongbao dead confirm --booked --packet CAMPAIGN/PACKET` asks the remote again, " +
			"and records a grant whose dead letter was dropped. It can't record a grant that a person decided in " +
			"quarantine, or a grant of a " +
			"refunded campaign: ask the remote's owners to take the credit back. Until they do, a grant that was paid from " +
			"the reserve is paid twice", true},
	{Unfounded, "the stream, the ledger or the topic has a grant without a receipt",
		"find out whether Redis lost writes. If Redis did, it may grant the packet again, so " + pauseOpen + ". Otherwise " +
			"find out who wrote the grant to that place", false},
	{Different, "two places have one packet with different users, amounts, shards or seqs",
		"compare the versions in the line of the difference; the ledger's version was paid. If Redis lost writes, it " +
			"granted the packet twice: " +
			pauseOpen, false},
	{OverHold, "a user has more packets than the limit allows",
		pause + ": someone wrote to Redis by hand, or two primaries granted packets. `hongbao receipts CAMPAIGN USER` shows " +
			"the user's packets. If a person granted one with --above-limit and was interrupted, repeat that command", false},
	{PacketTwice, "a packet is both in the stock and in a receipt, twice in the stock, or in two receipts",
		pauseAtOnce + ": Redis may grant the packet again", false},
	{PacketMissing, "no stock and no receipt has a packet, and neither do the stream, the ledger and the topic",
		pause + ": Redis lost the packet", false},
	{PacketUnknown, "a packet has a number that its campaign does not have",
		pause + ": its stock in Redis differs from its plan", false},
	{NotPlanned, "a packet's amount does not follow from the campaign's seed and specification",
		pause + ": its stock in Redis differs from its plan. The ledger refuses these amounts", false},
	{CounterDrift, "the counters of a campaign in Redis do not match its stock and receipts",
		pause + ": someone wrote to the campaign's keys in Redis by hand", false},
	{FundingDiffers, "Redis and the ledger disagree on a campaign's total, or on its refund",
		pause + ": the campaign was loaded with another specification, or Redis went back in time after the refund", false},
	{CampaignMissing, "a campaign is only in Redis, or only in the ledger",
		"if the ledger lacks the campaign, this is another ledger or an older copy: look at `ledger.dsn` with `hongbao " +
			"config check`, and " + pause + ". If Redis lacks the campaign, Redis has lost it. Do not load the campaign " +
			"again: its packets were granted. `hongbao campaign refund-lost ID` ends it from the ledger", true},
	{CampaignFrozen, "Redis has lost data of a campaign, so the campaign is frozen and grants nothing. Other " +
		"differences of this campaign have the same cause",
		"end the campaign from the ledger with `hongbao campaign refund-lost ID`. Without an amount the command moves no " +
			"money, and prints what is left", true},
	{CampaignBroken, "a campaign's keys can't be read, or some of them are missing",
		"someone wrote to the campaign's keys by hand, or Redis lost some of them: " + pauseOpen, false},
	{SeqGap, "some seqs belong to no grant, close or skipped range",
		"Redis lost events: " + pauseShard, false},
	{DuplicateSeq, "two grants have the same seq: Redis went back in time",
		pauseShard, false},
	{SeqBeyond, "a receipt has a higher seq than the shard: Redis went back in time, or someone wrote to the shard's " +
		"key `meta`",
		"before new grants get these seqs, " + pauseShard, false},
	{AfterClose, "a grant has a higher seq than the close of its campaign",
		"do not refund the campaign: the close does not count this grant. `hongbao campaign show ID` shows the campaign's " +
			"state",
		false},
	{StreamGap, "someone deleted events from the stream before a sink had finished them, or wrote events twice",
		"deliver these seqs to every sink again, from the receipts: `hongbao replay NAME --to balance --shard N --seq " +
			"FIRST-LAST`, and the same with `--to kafka`. Events that a sink does not owe are not reported: `hongbao status` " +
			"names them", true},
	{UnreadableEntry, "an entry of the stream can't be decoded",
		"find out who writes to the stream. The workers made a dead letter of the entry: `hongbao dead list` shows " +
			"it", false},
	{GroupMissing, "a shard has events, but the consumer group of a sink is missing",
		"start `hongbao work`: it creates the group, which reads from the oldest entry that is left. A sink that is new owes " +
			"nothing before that entry; one whose group was lost owes what it owed before", false},
	{MissingInTopic, "sink kafka has finished a grant, and the topic does not have it",
		"publish these grants again with `hongbao replay NAME --to kafka --missing`. If entries were deleted before a " +
			"worker read them, use `hongbao replay NAME --to kafka`", false},
	{CodeDiffers, "Redis, the ledger or the topic lacks the code of a coupon, or they have different codes",
		"the ledger has the valid code. `hongbao campaign load ID` writes codes that Redis lacks. Inform the users who got " +
			"another code from the topic", false},
	{DuplicateInTopic, "the topic has one grant more than once. The likely cause is an accepted loss (`recover " +
		"--accept-loss`): Redis no longer knew that the grant was published, and a worker published it again",
		"change nothing in the topic: subscribers drop the copy. `hongbao journal` shows whether a person " +
			"accepted a loss (`accept_loss`). If no one did, find the program that writes to the topic besides the workers",
		false},
	{MalformedRecord, "the topic has records that claim to be grants of this deployment and can't be read",
		"find out who writes to the topic. `hongbao tail` shows the records that can be read", false},
	{DeadLetter, "a grant is a dead letter, and its sink does not have it. The line of the difference has the reason",
		"fix the cause. Then decide with `hongbao dead requeue`, `hongbao dead confirm` or `hongbao dead drop`", true},
	{InQuarantine, "the ledger refused to pay a grant, and no person has decided about it yet",
		"first deliver the grants again: `hongbao replay NAME --to balance --missing` pays each that the ledger takes by " +
			"now, for example after a top-up. Then decide with `hongbao quarantine resolve`. docs/ledger.md explains each " +
			"reason", true},
	{OpenClaim, "a claim whose lease is over and whose events are finished: no worker will complete it",
		"requeue the dead letters of the claim's events with `hongbao dead requeue`. It reads in the topic which events " +
			"were published. If the topic can't tell, look for the events where `hongbao claim list` says. Then end the claim " +
			"and its dead letters with `hongbao claim settle`", true},
}

// remedyOf returns the remedy for a kind. found counts all kinds of differences in the report. frozen reports whether
// all differences of the kind belong to campaigns that can't be paused.
func remedyOf(k model.DifferenceKind, found map[model.DifferenceKind]int64, frozen bool) model.Remedy {
	m := &remedies[kindIndex(k)]
	do, moves := m.do, m.moves
	if frozen {
		do = endFrozen.Replace(do)
		moves = moves || do != m.do
	}
	if moves && found[LedgerUnbalanced]+found[DoubleCredit] > 0 {
		do = notWhileUnbalanced
	}
	return model.Remedy{Means: m.means, Do: do}
}
