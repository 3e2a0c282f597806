package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func letterOf(sink, class, user, reason string, at int64, amount hongbao.Amount) Letter {
	return Letter{Sink: sink, Class: class, Reason: reason, Seq: 1, Fields: []string{"c", "1 rain"}, Last: time.Unix(at, 0),
		Grant: &hongbao.Grant{Campaign: "rain", User: user, Amount: amount, Currency: "CNY"}}
}

// Letters with one cause are one group, although their reasons name users, packets and requests. The group's part selects
// all of them.
func TestLettersAreGroupedByTheirCause(t *testing.T) {
	t.Parallel()
	var list []Letter
	for i := range 5 {
		user := fmt.Sprint("user ", string(rune('a'+i))) // no digit, and a space
		list = append(list, letterOf("balance", "permanent", user, fmt.Sprintf("credit rain:%d: the account of %s is closed", i, user),
			int64(100-i), 150))
	}
	list = append(list, letterOf("balance", "transient", "u9", "credit rain:9: no answer within 2 s", 7, 100),
		letterOf("kafka", "permanent", "u9", "credit rain:3: the account of u9 is closed", 8, 100),
		Letter{Sink: "kafka", Class: "conflict", Reason: "no grab wrote it", Last: time.Unix(9, 0)})
	groups := GroupLetters(list)
	require.Len(t, groups, 4)
	require.Equal(t, LetterGroup{Sink: "balance", Class: "permanent", Reason: "credit rain:4: the account of user e is closed",
		Part: ": the account of", Letters: 5, Sums: Sums{{"CNY", 750}}, Campaigns: []string{"rain"}, First: time.Unix(96, 0),
		Last: time.Unix(100, 0)}, groups[0])
	for _, l := range list[:5] {
		require.Contains(t, l.Reason, groups[0].Part)
	}
	require.True(t, groups[3].Whole)
	require.Empty(t, groups[3].Sums)
	require.Empty(t, groups[3].Campaigns)
}

// The part of a group is never empty, so that it selects no other letters of the sink, unless the reason is empty.
func TestEveryGroupHasAPart(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"404", "u1", "u1 404 u1", "", "x1y", "a b1 c", strings.Repeat("7", 500)} {
		g := GroupLetters([]Letter{letterOf("kafka", "permanent", "u1", reason, 1, 1)})[0]
		require.Equal(t, reason == "", g.Part == "", reason)
		require.Contains(t, reason, g.Part)
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	var s Sums
	for _, x := range []Sum{{"USD", 1}, {"CNY", 2}, {"", 3}, {"USD", 4}, {"JPY", 5}} {
		s.Add(x.Amount, x.Currency)
	}
	require.Equal(t, Sums{{"CNY", 2}, {"JPY", 5}, {"USD", 5}}, s)
}
