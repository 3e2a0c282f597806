package webhook

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/webhooks.md")
	require.NoError(t, err)
	return string(text)
}

// The request in docs/webhooks.md is the one that a Handler sends, and its signature is right.
func TestRequestInTheDocs(t *testing.T) {
	t.Parallel()
	text := page(t)
	headers := http.Header{}
	for _, m := range regexp.MustCompile(`(?m)^    (Webhook-\w+): (\S+)$`).FindAllStringSubmatch(text, -1) {
		headers.Set(m[1], m[2])
	}
	require.Len(t, headers, 3)
	body := regexp.MustCompile(`(?m)^    (\{"specversion".*)$`).FindStringSubmatch(text)
	require.Len(t, body, 2)
	require.Contains(t, text, "`"+secret+"`")
	lib, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	require.NoError(t, lib.VerifyIgnoringTimestamp([]byte(body[1]), headers))

	g := hongbao.Grant{Campaign: "spring", Packet: 4711, User: "u1", Amount: 888, Currency: "CNY", Seq: 52, Epoch: 1,
		RequestID: "r1", Time: time.Date(2026, 11, 21, 8, 0, 0, 123e6, time.UTC)}
	require.Equal(t, body[1], string(cloudevent.AppendEvent(nil, "/hongbao/prod", ID(g.Campaign, g.Packet), &g)))
	again := http.Header{}
	newSigner(secret).sign(again, ID(g.Campaign, g.Packet), time.Unix(1_795_248_001, 0), []byte(body[1]))
	require.Equal(t, headers, again)
}

// The table of answers names each status that has a verdict of its own, in the row of its verdict.
func TestStatusesInTheDocs(t *testing.T) {
	t.Parallel()
	table := strings.SplitN(page(t), "| your answer |", 2)[1]
	rows := map[string]verdict{"| 400, ": refused, "| 401, ": misdirected, "| 429, ": unavailable, "| 408, ": failed,
		"| 409 ": odd}
	found := 0
	for line := range strings.Lines(table[:strings.Index(table, "\n\n")]) {
		for start, want := range rows {
			if !strings.HasPrefix(line, start) {
				continue
			}
			cell := strings.Split(line, "|")[1]
			for _, text := range regexp.MustCompile(`\b\d{3}\b`).FindAllString(cell, -1) {
				status, err := strconv.Atoi(text)
				require.NoError(t, err)
				require.Equal(t, want, verdictOf(status), text)
				found++
			}
		}
	}
	require.Equal(t, len(ofStatus)+1, found, "and 409 as an example")
}
