package access

import "slices"

// Role is the set of actions that an API key allows.
type Role string

// The roles. An operator may also do what a viewer may, and a treasurer what an operator may.
const (
	// RoleViewer reads.
	RoleViewer Role = "viewer"
	// RoleOperator operates campaigns, sinks and the delivery of dead letters, but does not create campaigns.
	RoleOperator Role = "operator"
	// RoleTreasurer takes the actions that move money.
	RoleTreasurer Role = "treasurer"
	// RoleGateway is for a program that grabs for its users and reads their receipts.
	RoleGateway Role = "gateway"
	// RoleClient is a client of the balance API. It books credits from its fund and reads them.
	RoleClient Role = "client"
	// RoleAccountant reads a client's credits, and all accounts of the balance API.
	RoleAccountant Role = "accountant"
)

// Roles returns the roles in the order in which docs/security.md lists them.
func Roles() []Role {
	return []Role{RoleViewer, RoleOperator, RoleTreasurer, RoleGateway, RoleClient, RoleAccountant}
}

// Action is what a caller asks to do, as the journal names it.
type Action string

// The actions that an API key may allow.
const (
	ReadCampaigns    Action = "read_campaigns"
	ReadGrants       Action = "read_grants"
	ReadTrails       Action = "read_trails"
	ReadSinks        Action = "read_sinks"
	ReadLetters      Action = "read_letters"
	ReadQuarantine   Action = "read_quarantine"
	ReadJournal      Action = "read_journal"
	ReadUser         Action = "read_user"
	LoadCampaign     Action = "load_campaign"
	PauseCampaign    Action = "pause_campaign"
	ResumeCampaign   Action = "resume_campaign"
	ShareCampaign    Action = "share_campaign"
	EndLink          Action = "end_link"
	RequeueLetters   Action = "requeue_letters"
	Replay           Action = "replay"
	PauseSink        Action = "pause_sink"
	ResumeSink       Action = "resume_sink"
	LimitSink        Action = "limit_sink"
	RunAudit         Action = "run_audit"
	SealCampaigns    Action = "seal_campaigns"
	CreateCampaign   Action = "create_campaign"
	TopUpCampaign    Action = "top_up_campaign"
	CancelCampaign   Action = "cancel_campaign"
	CloseCampaign    Action = "close_campaign"
	Refund           Action = "refund"
	RevealCampaign   Action = "reveal_campaign"
	DropLetters      Action = "drop_letters"
	DecideQuarantine Action = "decide_quarantine"
	Grab             Action = "grab"
	BookCredits      Action = "book_credits"
	ReadCredits      Action = "read_credits"
	ReadAccounts     Action = "read_accounts"

	AcknowledgeDifference Action = "acknowledge_difference"
)

// The actions that begin and end a session of the console. The journal records them. Every role that may open the
// console may take them.
const (
	LogIn  Action = "log_in"
	LogOut Action = "log_out"
)

// The actions that only the command line takes, with the ledger's DSN. The journal records them, too.
const (
	ManageKeys     Action = "manage_keys"
	AcceptLoss     Action = "accept_loss"
	RefundLost     Action = "refund_lost"
	DisownCampaign Action = "disown_campaign"
	ConfirmCredits Action = "confirm_credits"
	SettleClaim    Action = "settle_claim"
	RemoveSink     Action = "remove_sink"
	FundClient     Action = "fund_client"

	ArchiveCampaign Action = "archive_campaign"
	GrantWithheld   Action = "grant_withheld"
	ReleaseWithheld Action = "release_withheld"
)

// Rule says which roles may take an action.
type Rule struct {
	Action Action
	// What describes the action for a person.
	What  string
	Roles []Role
	// Whole says that the action always concerns the whole deployment. A key with a campaign scope may not take it.
	Whole bool
	// WithoutLedger says that the action must work while the ledger is unreachable. The Authority then accepts an older
	// list.
	WithoutLedger bool
}

// rules is the one definition of which roles may take which actions.
var rules = []Rule{
	{Action: ReadCampaigns, What: "list campaigns, look at one: counts, window, plan hash; never its seed", Roles: readers,
		WithoutLedger: true},
	{Action: ReadGrants, What: "read a user's receipts; never a coupon's code", Roles: gateways},
	{Action: ReadTrails, What: "follow a grant through all stores; never a coupon's code", Roles: readers},
	{Action: ReadSinks, What: "see sinks, workers, lag and audits", Roles: readers, Whole: true, WithoutLedger: true},
	{Action: ReadLetters, What: "read dead letters", Roles: readers},
	{Action: ReadQuarantine, What: "read the quarantine", Roles: readers},
	{Action: ReadJournal, What: "read the journal", Roles: readers, Whole: true},
	{Action: ReadUser, What: "read all that is stored about a user; never a coupon's code", Roles: operators, Whole: true},
	{Action: LoadCampaign, What: "load a campaign into Redis", Roles: operators},
	{Action: PauseCampaign, What: "pause a campaign", Roles: operators, WithoutLedger: true},
	{Action: ResumeCampaign, What: "resume a campaign", Roles: operators, WithoutLedger: true},
	{Action: ShareCampaign, What: "make a link that shows a campaign to people without a key", Roles: operators},
	{Action: EndLink, What: "end such a link", Roles: operators},
	{Action: RequeueLetters, What: "deliver dead letters after all", Roles: operators},
	{Action: Replay, What: "replay grants", Roles: operators},
	{Action: PauseSink, What: "pause a sink", Roles: operators, Whole: true, WithoutLedger: true},
	{Action: ResumeSink, What: "resume a sink", Roles: operators, Whole: true, WithoutLedger: true},
	{Action: LimitSink, What: "set a sink's rate limit", Roles: operators, Whole: true},
	{Action: RunAudit, What: "run an audit", Roles: operators, Whole: true},
	{Action: CreateCampaign, What: "create and fund a campaign", Roles: treasurers},
	{Action: TopUpCampaign, What: "add packets to a campaign, and fund them", Roles: treasurers},
	{Action: CancelCampaign, What: "cancel a campaign whose loading has not begun", Roles: treasurers},
	{Action: CloseCampaign, What: "close a campaign, also before its end", Roles: treasurers},
	{Action: Refund, What: "refund what is left", Roles: treasurers},
	{Action: RevealCampaign, What: "make the seed of a refunded campaign public", Roles: treasurers},
	{Action: SealCampaigns, What: "seal refunded campaigns after an audit without a difference", Roles: treasurers, Whole: true},
	{Action: DropLetters, What: "drop dead letters", Roles: treasurers},
	{Action: DecideQuarantine, What: "pay or void a grant in quarantine", Roles: treasurers},
	{Action: AcknowledgeDifference, What: "acknowledge a known difference of the audit", Roles: treasurers, Whole: true},
	{Action: Grab, What: "grab for the users that it names", Roles: gateways, WithoutLedger: true},
	{Action: BookCredits, What: "book credits from its client's fund", Roles: clients, Whole: true, WithoutLedger: true},
	{Action: ReadCredits, What: "read its client's credits", Roles: bankers, Whole: true, WithoutLedger: true},
	{Action: ReadAccounts, What: "read balances and statements of all accounts of the balance API", Roles: accountants,
		Whole: true, WithoutLedger: true},
	{Action: ManageKeys, What: "make, rotate, revoke and list API keys", Whole: true},
	{Action: AcceptLoss, What: "accept that Redis has lost something", Whole: true},
	{Action: RefundLost, What: "end a campaign that Redis has lost"},
	{Action: DisownCampaign, What: "say that the ledger will never have a campaign"},
	{Action: ConfirmCredits, What: "say what the remote has booked", Whole: true},
	{Action: RemoveSink, What: "remove a sink that the configuration does not name any more", Whole: true},
	{Action: SettleClaim, What: "say whether a batch is in the topic", Whole: true},
	{Action: FundClient, What: "fill a fund of the balance API", Whole: true},
	{Action: ArchiveCampaign, What: "write a sealed campaign's grants to a file, and delete them from the ledger"},
	{Action: GrantWithheld, What: "grant a packet that a restore has withheld"},
	{Action: ReleaseWithheld, What: "give the packets that a restore has withheld back to the stock"},
}

var (
	readers     = []Role{RoleViewer, RoleOperator, RoleTreasurer}
	operators   = []Role{RoleOperator, RoleTreasurer}
	treasurers  = []Role{RoleTreasurer}
	gateways    = []Role{RoleGateway}
	clients     = []Role{RoleClient}
	accountants = []Role{RoleAccountant}
	bankers     = []Role{RoleClient, RoleAccountant} // roles of the balance API: their keys have a client
)

// Rules returns the table of actions and roles. Only the command line takes an action that has no role.
func Rules() []Rule { return slices.Clone(rules) }

// RolesOf returns the names of the roles that may take an action.
func RolesOf(a Action) []string {
	var all []string
	for _, role := range ruleOf(a).Roles {
		all = append(all, string(role))
	}
	return all
}

// ruleOf returns the rule for an action. For an unknown action, it returns a rule that allows no role.
func ruleOf(a Action) Rule {
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Action == a })
	if i < 0 {
		return Rule{Action: a, Whole: true}
	}
	return rules[i]
}
