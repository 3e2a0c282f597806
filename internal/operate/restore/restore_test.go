package restore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

func TestIntact(t *testing.T) {
	t.Parallel()
	f := restore.ShardState{Seq: 30, Certain: 20}
	require.Equal(t, int64(20), restore.Intact(f))
	f.Floors = []int64{25, 15}
	require.Equal(t, int64(15), restore.Intact(f), "a later opening has replaced the rest")
	f.OnePromotion, f.Floors = true, nil
	require.Equal(t, int64(30), restore.Intact(f))
}

func TestHoles(t *testing.T) {
	t.Parallel()
	spans := []stream.SeqRange{{First: 5, Last: 10}, {First: 100, Last: 102}}
	want := []stream.SeqRange{{First: 5, Last: 5}, {First: 8, Last: 9}, {First: 100, Last: 100}, {First: 102, Last: 102}}
	require.Equal(t, want, restore.Holes(spans, []int64{1, 6, 7, 7, 10, 50, 101}))
	require.Empty(t, restore.Holes([]stream.SeqRange{{First: 5, Last: 5}}, []int64{5}))
}

func TestDecide(t *testing.T) {
	t.Parallel()
	all := restore.Evidence{Lines: true, Patience: restore.Patience}
	for want, change := range map[restore.Decision]func(e *restore.Evidence){
		restore.Exact:   func(*restore.Evidence) {},
		restore.Wait:    func(e *restore.Evidence) { e.Silent, e.Waited = 1, restore.Patience-1 },
		restore.Guarded: func(e *restore.Evidence) { e.Lines, e.Waited = false, restore.Patience },
	} {
		e := all
		change(&e)
		require.Equal(t, want, restore.Decide(e))
	}
	wrote := at(20_000)
	require.Equal(t, 2, restore.Silent([]restore.Line{
		{At: wrote.Add(-restore.Fresh)}, {At: wrote.Add(1 - restore.Fresh)}, {At: wrote.Add(time.Hour)},
		{At: wrote, Sent: true},
	}, wrote))
}

func grantOf(seq, epoch, packet int64, user, request string) hongbao.Grant {
	return hongbao.Grant{Seq: seq, Epoch: epoch, Campaign: "c", Packet: packet, User: user, RequestID: request}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	claims := restore.Constraints{
		Passed: func(g *hongbao.Grant) bool { return g.Seq <= 10 }, Fixed: []hongbao.Grant{grantOf(9, 1, 1, "u1", "r1")},
		Withheld: func(_ string, packet int64) bool { return packet == 3 },
		LeftOut:  func(g *hongbao.Grant) bool { return g.User == "gone" },
		Limit:    func(string) int64 { return 1 },
	}
	kept, lost := restore.Merge([]restore.Known{
		{Grant: grantOf(11, 1, 5, "u2", "r2"), From: restore.Witness},
		{Grant: grantOf(11, 1, 5, "u2", "r2"), From: restore.Topic},    // a second report of the same grant
		{Grant: grantOf(11, 1, 6, "u3", "r3"), From: restore.Redis},    // keeps the seq: precedence over the topic
		{Grant: grantOf(12, 1, 7, "u4", "r4"), From: restore.Redis},    // loses the packet to the ledger's grant
		{Grant: grantOf(12, 1, 7, "u5", "r5"), From: restore.Ledger},   //
		{Grant: grantOf(13, 1, 8, "u1", "r6"), From: restore.Witness},  // the user is above the limit
		{Grant: grantOf(8, 1, 3, "u6", "r7"), From: restore.Witness},   // moves: its seq is intact, its packet withheld
		{Grant: grantOf(8, 1, 4, "u7", "r8"), From: restore.Witness},   // its packet is no longer withheld
		{Grant: grantOf(14, 1, 9, "u8", "r9"), From: restore.Redis},    // loses the packet to a later epoch
		{Grant: grantOf(70, 2, 9, "u9", "r10"), From: restore.Witness}, //
		{Grant: grantOf(15, 1, 10, "gone", "r11"), From: restore.Witness},
	}, claims)
	moved, users := map[string]bool{}, []string{}
	for _, k := range kept {
		moved[k.User] = k.Moved
	}
	for _, k := range lost {
		users = append(users, k.User)
	}
	require.Equal(t, map[string]bool{"u2": true, "u3": false, "u5": false, "u6": true, "u9": false}, moved)
	require.ElementsMatch(t, []string{"u4", "u1", "u7", "u8", "gone"}, users)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	p := restore.Place{
		Packets: []int64{4, 5, 6, 7, 8, 9},
		Known:   map[int64]restore.Known{5: {Grant: grantOf(21, 1, 5, "u2", "r2")}},
		Spans: []restore.Span{{
			Seqs:  stream.SeqRange{First: 20, Last: 22},
			Holes: []stream.SeqRange{{First: 20, Last: 20}, {First: 22, Last: 22}},
		}},
	}
	packets := func(p restore.Place) (known, withheld []int64) {
		for _, s := range restore.Plan(p) {
			if s.Grant != nil {
				known = append(known, s.Packet)
			} else {
				withheld = append(withheld, s.Packet)
			}
		}
		return known, withheld
	}
	known, withheld := packets(p)
	require.Equal(t, []int64{5}, known)
	require.Equal(t, []int64{4, 6}, withheld, "one before the known packet, one for the hole after it")
	p.Known[7] = restore.Known{Grant: grantOf(90, 1, 7, "u3", "r3"), Moved: true}
	_, withheld = packets(p)
	require.Equal(t, []int64{4, 6, 8}, withheld, "the last known packet now has a moved grant")
	delete(p.Known, 7)
	p.Margin = 1
	_, withheld = packets(p)
	require.Equal(t, []int64{4, 6, 7}, withheld)
	p.Spans = append(p.Spans, restore.Span{
		Seqs: stream.SeqRange{First: 100, Last: 100}, Holes: []stream.SeqRange{{First: 100, Last: 100}}, Through: 5,
	})
	_, withheld = packets(p)
	require.Equal(t, []int64{4, 6, 7, 8}, withheld, "one more for the hole of a later epoch")
	p.Through = 8
	_, withheld = packets(p)
	require.Equal(t, []int64{4, 6, 7, 8}, withheld)
	p.Through, p.Spans[1].Through, p.Spans[1].Withheld = 0, 0, 1
	_, withheld = packets(p)
	require.Equal(t, []int64{4, 6, 7, 8, 9}, withheld, "one more that the lost opening of the later epoch withheld")
}

func TestJudge(t *testing.T) {
	t.Parallel()
	late := lateGrant{Grant: grantOf(5, 1, 7, "u", "r"), Withheld: true, Open: true, Places: 1, Limit: 1}
	require.Equal(t, granted, fateOf(late))
	for name, change := range map[string]func(l *lateGrant){
		"dealt to another": func(l *lateGrant) { l.Withheld = false },
		"over":             func(l *lateGrant) { l.Open = false },
		"several places":   func(l *lateGrant) { l.Places = 2 },
		"limit":            func(l *lateGrant) { l.Held = []hongbao.Grant{grantOf(6, 2, 9, "u", "r2")} },
		"request": func(l *lateGrant) {
			l.Limit, l.Held = 2, []hongbao.Grant{grantOf(6, 2, 9, "u", "r")}
		},
	} {
		l := late
		change(&l)
		require.Equal(t, quarantine, fateOf(l), name)
	}
	late.Held = []hongbao.Grant{grantOf(5, 1, 7, "u", "r")}
	require.Equal(t, has, fateOf(late))
}
