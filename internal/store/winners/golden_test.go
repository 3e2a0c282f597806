package winners_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store/winners"
)

// A filter of users u0 to u99 in the stored form of version 1.
const (
	goldenHead = "1 h 100 216 2d7a9241a6980d5a"
	goldenBody = "wVwCiewtCpFAAAAAPwAAAAEAAABAAAAAAB8AACEAANI3AMriAAAAACAZHiVOAAChfiY0AGUAAAAqAGIAAGYAHQAAFQAAYPUAAAAAiQAA" +
		"AwAA/BUAcw8ArgAAAAAAAABVygAArACiAGsAAABs6FdbYwAAAA4AAAAAAAB4VScAdpEAAIoAwgAATNenAADjAIgnwKsAAADNAACRKccAAGkA" +
		"AAAA+j8AVTc3AAAAcQCzABcATNt4jAAAAF8A949rmOikP68ABXMAcwDYGWu88GoAzJOBegCEA5tY"
)

// hundred returns 100 user names with the given prefix, such as u0 to u99.
func hundred(prefix string) (users []string) {
	for i := range 100 {
		users = append(users, fmt.Sprint(prefix, i))
	}
	return users
}

// A filter that was stored in version 1 has all its winners. If this test fails, raise version. Otherwise winners'
// receipts would be hidden while workers and producers of two builds run.
func TestGoldenFilter(t *testing.T) {
	t.Parallel()
	body, err := base64.StdEncoding.DecodeString(goldenBody)
	require.NoError(t, err)
	f, err := winners.Decode(goldenHead, body)
	require.NoError(t, err)
	for _, u := range hundred("u") {
		require.True(t, f.Has(u), "%s: if this fails, raise version", u)
	}
	others := 0
	for _, u := range hundred("l") {
		if f.Has(u) {
			others++
		}
	}
	require.Less(t, others, 10, "only false positives may be in the filter")
}

// A filter that lacks a winner is not stored: prove returns an error.
func TestFilterIsProved(t *testing.T) {
	t.Parallel()
	f, err := winners.New("h", hundred("u"))
	require.NoError(t, err)
	require.NoError(t, winners.Prove(f, hundred("u")))
	err = winners.Prove(f, append(hundred("u"), hundred("l")...))
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "lacks one of them")
}
