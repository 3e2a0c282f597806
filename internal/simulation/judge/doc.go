// Package judge says whether a deployment kept its promises to its users. It stands apart: it reads the ledger by its
// own SQL, the topic by franz-go, and Redis by plain commands, and imports no other package of the project. So a
// mistake that the project makes in writing and in reading is seen here. docs/design/simulation.md has the rules.
package judge

// Win is a packet that a user was told.
type Win struct {
	Campaign, User, Request string
	Packet, Amount          int64
	Shard                   int
	Seq                     int64
}

// Campaign is what the judge knows of a campaign.
type Campaign struct {
	ID             string
	Packets, Total int64
	Hold           int64 // the most packets of a user
	Lost           bool  // a person has accepted the loss of a shard with packets of it
}

// Facts are what happened outside of the stores.
type Facts struct {
	Campaigns []Campaign
	Told      []Win
	GaveUp    []Win // without a packet: requests whose users gave up before a final answer
	// Above has the packets that a person has granted above a campaign's limit, by "campaign user". Decided says that a
	// person has decided about all withheld packets, so none of them was told to a user.
	Above   map[string]int64
	Decided bool
	// TopicAgain says that the topic was deleted and made again, so it may lack what subscribers handled.
	TopicAgain bool
	// RedisLoses says that Redis may have lost writes.
	RedisLoses bool
	// SinkMoves says that sink kafka came or went: the topic may lack what it does not owe. By shard, OwedAfter has a seq
	// after which it owes everything; nil if no such seq is known.
	SinkMoves bool
	OwedAfter map[int]int64
	Twice     *Twice // nil: nobody has put a packet back
	// Hook says that the deployment has a webhook. Posted is what its receiver has.
	Hook   bool
	Posted []Win
}

// Findings are what the judge finds.
type Findings struct {
	Wrong   []string // must never be
	Missing []string // must not be once everything is final
	Losses  []string // is missing, and a report names it
	Unpaid  int64    // told packets that the ledger lacks after an accepted loss
	NotOwed int64    // grants that the topic lacks and sink kafka does not owe, counted for each place that has them
}
