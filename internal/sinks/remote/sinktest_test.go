package remote

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/sink/sinktest"
)

func TestSink(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(*Config){
		"idempotent and queryable": func(*Config) {},
		"idempotent":               repeats,
		"queryable":                queryable,
		"batches":                  kinds["batches"],
		"neither":                  neither,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(t testing.TB) sinktest.Subject {
				cfg := testConfig("")
				kind(&cfg)
				s := newSubject(t, kind)
				return sinktest.Subject{Open: s.open, Effects: s.effects, Grants: s.grants, Poison: s.poison, Down: s.down,
					Lose: s.loss.Lose, Expire: func(testing.TB) { s.ledger.died() }, MayDoubt: !cfg.idempotent()}
			})
		})
	}
}

// subject is a bank that can be down and lose requests, and the ledger.
type subject struct {
	kind   func(*Config)
	bank   *bank
	ledger *fakeLedger
	packet int64         // the last one that was granted
	seqs   map[int]int64 // by shard: the last one

	address string
	server  *http.Server
	served  chan error
	loss    testkit.Loss
}

func newSubject(t testing.TB, kind func(*Config)) *subject {
	t.Helper()
	s := &subject{kind: kind, bank: newBank(t), ledger: newBooks(), seqs: map[int]int64{}, address: "127.0.0.1:0"}
	s.bank.refusesEach = true
	s.up(t)
	t.Cleanup(func() { s.end(t) })
	return s
}

// up starts the server at its address.
func (s *subject) up(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", s.address)
	require.NoError(t, err)
	s.address, s.served = l.Addr().String(), make(chan error, 1)
	server := &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	s.server = server
	go func() { s.served <- server.Serve(l) }()
}

// end stops the server and breaks its connections.
func (s *subject) end(t testing.TB) {
	t.Helper()
	require.NoError(t, s.server.Close())
	if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
		require.NoError(t, err)
	}
}

func (s *subject) down(t testing.TB, down bool) {
	t.Helper()
	if down {
		s.end(t)
	} else {
		s.up(t)
	}
}

func (s *subject) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	request, answer := s.loss.Step()
	if request {
		panic(http.ErrAbortHandler)
	}
	if answer {
		s.bank.Config.Handler.ServeHTTP(httptest.NewRecorder(), req)
		panic(http.ErrAbortHandler)
	}
	s.bank.Config.Handler.ServeHTTP(w, req)
}

func (s *subject) open(t testing.TB) hongbao.Handler {
	t.Helper()
	cfg := testConfig("http://" + s.address)
	s.kind(&cfg)
	h, err := New(cfg, campaigns{}, s.ledger)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

// effects returns how often the bank has booked each grant.
func (s *subject) effects(_ testing.TB, grants []hongbao.Grant) []int {
	s.bank.mu.Lock()
	defer s.bank.mu.Unlock()
	counts := make([]int, len(grants))
	for i, g := range grants {
		for _, c := range s.bank.booked[testKey(&g)] {
			if c.Account == g.User {
				counts[i]++
			}
		}
	}
	return counts
}

func (s *subject) grants(_ testing.TB, shard, n int) []hongbao.Grant {
	list := make([]hongbao.Grant, n)
	for i := range list {
		s.packet++
		s.seqs[shard]++
		list[i] = hongbao.Grant{Shard: shard, Seq: s.seqs[shard], Epoch: 1, Campaign: "rain", Packet: s.packet,
			Amount: hongbao.Amount(100 + s.packet), User: fmt.Sprintf("u%d", s.packet)}
	}
	return list
}

// poison makes the bank refuse the grant's account with a code that concerns only one credit.
func (s *subject) poison(_ testing.TB, g hongbao.Grant) hongbao.Grant {
	s.bank.mu.Lock()
	defer s.bank.mu.Unlock()
	if s.bank.refused == nil {
		s.bank.refused = map[string]int{}
	}
	s.bank.refused[g.User] = http.StatusUnprocessableEntity
	return g
}
