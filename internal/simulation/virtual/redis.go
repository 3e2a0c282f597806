package virtual

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	mini "github.com/alicebob/miniredis/v2/server"
)

// RedisAddr is where Redis listens.
const RedisAddr = "127.0.0.1:6379"

// Redis is a Redis of one history: a miniredis, and what it lacks.
type Redis struct {
	*miniredis.Miniredis
	net *Net

	mu       sync.Mutex
	runs     int
	run      string            // run_id
	before   string            // master_replid2: the server that this one was promoted from
	flagged  map[string]string // from the SHA-1 of a script with flags that this run has, to that of the text without
	full     bool
	node     int           // entries of a node of a stream
	lags     bool          // the replica gets nothing, since a snapshot that will be promoted
	file     reflect.Value // what the append-only file has; invalid if it has everything
	endClock func()
}

// outOfMemory is the answer to a command that grows memory, in a script without flags. No command writes outside of a
// script.
const outOfMemory = "OOM command not allowed when used memory > 'maxmemory'."

// NewRedis starts the network's Redis.
func NewRedis(n *Net, seed uint64) (*Redis, error) {
	s := &Redis{Miniredis: miniredis.NewMiniRedis(), net: n, before: "0", node: nodeEntries, endClock: func() {}}
	s.ClockTTL(true)
	s.Seed(int(seed))
	first, err := s.Dial() // starts it without a listener
	if err != nil {
		return nil, err
	}
	_ = first.Close()
	s.begin(false)
	s.Server().SetPreHook(s.hook)
	n.Serve(RedisAddr, "redis", func() Wire { return &redisWire{scripts: n.scripts} },
		func(c net.Conn) { s.Server().ServeConn(c) })
	return s, nil
}

// begin starts another run of the server, without the scripts of the last one.
func (s *Redis) begin(promoted bool) {
	s.mu.Lock()
	s.runs++
	s.before = "0"
	if promoted {
		s.before = s.run
	}
	s.run = fmt.Sprintf("%040x", uint64(s.runs)<<32+1)
	s.flagged = map[string]string{}
	s.mu.Unlock()
	s.Lock()
	defer s.Unlock()
	s.texts().Set(reflect.MakeMap(s.texts().Type()))
}

// hook answers what miniredis does not know: INFO as a real server, scripts with flags, and a lack of memory.
func (s *Redis) hook(c *mini.Peer, cmd string, args ...string) bool {
	if cmd == "WAIT" && len(args) == 2 {
		c.WriteInt(s.wait(args[1]))
		return true
	}
	if cmd == "WAITAOF" && len(args) == 3 {
		s.sync()
		c.WriteLen(2)
		c.WriteInt(1)
		c.WriteInt(0)
		return true
	}
	if s.rewritten(c, cmd, args) {
		return true
	} else if s.refused(c, cmd, args) {
		c.WriteError(outOfMemory)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case cmd == "INFO":
		c.WriteBulk(s.info())
		return true
	case cmd == "EVAL" && strings.HasPrefix(args[0], flags):
		return s.dispatch(c, append([]string{"EVALSHA", s.load(digest(args[0]))}, args[1:]...)...)
	case cmd == "SCRIPT" && len(args) > 1 && strings.HasPrefix(args[1], flags):
		sha := digest(args[1])
		s.load(sha)
		c.WriteBulk(sha)
		return true
	case cmd == "EVALSHA" && s.flagged[args[0]] != "":
		return s.dispatch(c, append([]string{"EVALSHA", s.flagged[args[0]]}, args[1:]...)...)
	}
	return false
}

// load gives miniredis a script with flags as the same script without, which it names by another SHA-1. The caller holds
// mu.
func (s *Redis) load(sha string) string {
	text, has := s.net.scripts.plain(sha)
	if !has {
		return sha
	}
	plain := digest(text)
	s.flagged[sha] = plain
	s.mu.Unlock() // a script that runs has miniredis' lock, and its commands come through the hook
	defer s.mu.Lock()
	s.Lock()
	defer s.Unlock()
	s.texts().SetMapIndex(reflect.ValueOf(plain), reflect.ValueOf(text))
	return plain
}

// texts has miniredis' scripts, by their SHA-1.
func (s *Redis) texts() reflect.Value {
	return Reachable(reflect.ValueOf(s.Miniredis).Elem().FieldByName("scripts"))
}

// dispatch carries out a command in place of another one. The caller holds mu.
func (s *Redis) dispatch(c *mini.Peer, args ...string) bool {
	s.mu.Unlock() // the command, and those of a script, come through the hook
	defer s.mu.Lock()
	s.Server().Dispatch(c, args)
	return true
}

func (s *Redis) info() string {
	used, limit := 1<<20, 1<<30
	if s.full {
		used = limit
	}
	return fmt.Sprintf("# Server\r\nredis_version:7.2.0\r\nredis_mode:standalone\r\nrun_id:%s\r\nuptime_in_seconds:100\r\n"+
		"role:master\r\nconnected_slaves:1\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\nmaxmemory:%d\r\n"+
		"used_memory:%d\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\nloading:0\r\n", s.run, limit, used, s.run, s.before)
}

// wait answers WAIT: how many replicas have all writes. A replica that lags has not, until the time limit is over.
func (s *Redis) wait(ms string) int {
	s.mu.Lock()
	lags := s.lags
	s.mu.Unlock()
	if !lags {
		return 1
	}
	limit, _ := strconv.Atoi(ms)
	_ = Sleep(context.Background(), time.Duration(limit)*time.Millisecond)
	return 0
}

// SetLags says whether the replica gets nothing from now on, so that WAIT counts none.
func (s *Redis) SetLags(lags bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lags = lags
}

// fsyncEvery is the pause between two syncs of the append-only file, when a process waits for one.
const fsyncEvery = 400 * time.Millisecond

// sync writes to the append-only file what it lacks. It happens for WAITAOF only, so a file may be older than real ones.
func (s *Redis) sync() {
	s.mu.Lock()
	behind := s.file.IsValid()
	s.mu.Unlock()
	if !behind {
		return
	}
	_ = Sleep(context.Background(), fsyncEvery)
	s.SetFile(Snapshot(s.Miniredis))
}

// SetFile sets what the append-only file has; an invalid value: everything.
func (s *Redis) SetFile(file reflect.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = file
}

// Synced returns what the append-only file has; an invalid value: everything.
func (s *Redis) Synced() reflect.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

// SetFull says whether memory is full from now on.
func (s *Redis) SetFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// SetNode sets how many entries a node of a stream has.
func (s *Redis) SetNode(entries int) { s.node = entries }

// Away is how long Redis does not answer while another run begins.
const Away = 300 * time.Millisecond

// GoBack gives Redis the contents of a snapshot: a failover to a copy that lags, or a restart from an old file.
func (s *Redis) GoBack(ctx context.Context, to reflect.Value, promoted bool) error {
	s.net.Down(RedisAddr, true)
	defer s.net.Down(RedisAddr, false)
	if to.IsValid() {
		rewind(s.Miniredis, to)
	} else {
		s.FlushAll()
	}
	s.begin(promoted)
	return Sleep(ctx, Away)
}

// SetClock makes Redis' clock differ from the others'. 0 sets it right.
func (s *Redis) SetClock(by time.Duration) {
	s.mu.Lock()
	s.endClock()
	s.endClock = func() {}
	s.mu.Unlock()
	if by == 0 {
		s.SetTime(time.Time{})
		return
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.SetTime(time.Now().UTC().Add(by))
	go func() { // miniredis' own clock stands once it is set
		defer close(done)
		for Sleep(ctx, 5*time.Millisecond) == nil {
			s.SetTime(time.Now().UTC().Add(by))
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endClock = func() { end(); <-done }
}
