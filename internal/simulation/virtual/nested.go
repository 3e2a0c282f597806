package virtual

import (
	"bufio"
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	mini "github.com/alicebob/miniredis/v2/server"
)

// rewritten answers commands that miniredis carries out otherwise than Redis, and reports whether it did. TestCorpus
// of internal/store compares the two.
func (s *Redis) rewritten(c *mini.Peer, cmd string, args []string) bool {
	switch {
	case inTransaction(c):
		if cmd == "INFO" {
			s.queueInfo(c)
		}
		return cmd == "INFO"
	case cmd == "XTRIM" && len(args) > 3 && args[1] == "MINID" && args[2] == "~":
		return s.trimNodes(c, args[0], args[3], args[4:])
	case cmd == "XCLAIM" && len(args) > 4:
		return s.claim(c, args)
	case cmd == "XREADGROUP" && len(args) > 3: // creates the consumer, also if there is nothing to read
		if at := slices.Index(args, "STREAMS") + 1; at > 0 && at < len(args) {
			s.ask(c, "XGROUP", "CREATECONSUMER", args[at], args[1], args[2])
		}
	case cmd == "XPENDING":
		return s.pending(c, args)
	case cmd == "XINFO" && len(args) == 3 && strings.EqualFold(args[0], "CONSUMERS"):
		return s.consumers(c, args)
	}
	return false
}

// ask returns what miniredis answers to a command, in the same script or connection.
func (s *Redis) ask(c *mini.Peer, command ...string) []any {
	var text bytes.Buffer
	out := bufio.NewWriter(&text)
	asks := mini.NewPeer(out)
	asks.Ctx = c.Ctx
	s.Server().Dispatch(asks, command)
	_ = out.Flush()
	reply, err := mini.ParseReply(bufio.NewReader(&text))
	list, is := reply.([]any)
	if err != nil || !is {
		return nil
	}
	return list
}

// nodeEntries is how many small entries a node of a stream has, unless stream-node-max-entries is set.
const nodeEntries = 100

// trimNodes answers XTRIM with ~, which deletes whole nodes only, and no more entries than its LIMIT.
func (s *Redis) trimNodes(c *mini.Peer, key, id string, limit []string) bool {
	entries := s.ask(c, "XRANGE", key, "-", id)
	ids := make([]string, len(entries))
	for i := range entries {
		ids[i] = textOf(entries[i], 0)
	}
	whole := len(ids)
	if whole > 0 && ids[whole-1] == id {
		whole--
	}
	if len(limit) == 2 {
		if most, _ := strconv.Atoi(limit[1]); most > 0 {
			whole = min(whole, most)
		}
	}
	if whole -= whole % s.node; whole < len(ids) {
		id = ids[whole]
	}
	s.Server().Dispatch(c, []string{"XTRIM", key, "MINID", id})
	return true
}

// claim answers XCLAIM: Redis drops entries that were deleted from the stream, and counts no attempt with JUSTID.
func (s *Redis) claim(c *mini.Peer, args []string) bool {
	key, group := args[0], args[1]
	end := 4
	for end < len(args) && strings.Contains(args[end], "-") {
		end++
	}
	options := args[end:]
	ids := slices.DeleteFunc(slices.Clone(args[4:end]), func(id string) bool {
		gone := len(s.ask(c, "XRANGE", key, id, id)) == 0
		if gone {
			s.ask(c, "XACK", key, group, id)
		}
		return gone
	})
	kept := slices.Contains(options, "JUSTID") && !slices.Contains(options, "RETRYCOUNT") && len(ids) == 1
	if kept {
		if rows := s.ask(c, "XPENDING", key, group, ids[0], ids[0], "1"); len(rows) == 1 {
			options = append([]string{"RETRYCOUNT", textOf(rows[0], 3)}, options...)
		} else {
			kept = false
		}
	}
	switch {
	case len(ids) == 0:
		c.WriteLen(0)
	case !kept && len(ids) == end-4:
		return false
	default:
		s.Server().Dispatch(c, slices.Concat([]string{"XCLAIM"}, args[:4], ids, options))
	}
	return true
}

// pending answers XPENDING with a range. miniredis has no first id that is left out. While its clock is behind, it omits
// entries that were delivered at a later time.
func (s *Redis) pending(c *mini.Peer, args []string) bool {
	if len(args) < 5 || strings.EqualFold(args[2], "IDLE") {
		return false
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if id, is := strings.CutPrefix(arg, "("); is {
			ms, n, _ := strings.Cut(id, "-")
			seq, _ := strconv.ParseUint(n, 10, 64)
			args[i] = fmt.Sprintf("%s-%d", ms, seq+1)
		}
	}
	const ahead = "-1000000000" // ms
	rows := s.ask(c, slices.Concat([]string{"XPENDING", args[0], args[1], "IDLE", ahead}, args[2:])...)
	if len(rows) == 0 { // or an error
		s.Server().Dispatch(c, slices.Concat([]string{"XPENDING", args[0], args[1], "IDLE", "0"}, args[2:]))
		return true
	}
	c.WriteLen(len(rows))
	for _, row := range rows {
		idle, _ := strconv.Atoi(textOf(row, 2))
		times, _ := strconv.Atoi(textOf(row, 3))
		c.WriteLen(4)
		c.WriteBulk(textOf(row, 0))
		c.WriteBulk(textOf(row, 1))
		c.WriteInt(max(idle, 0))
		c.WriteInt(times)
	}
	return true
}

// consumers answers XINFO CONSUMERS. miniredis has -1 as the idle time of a consumer that has only read.
func (s *Redis) consumers(c *mini.Peer, args []string) bool {
	if len(args) == 3 && args[0] == "consumers" { // asked below
		return false
	}
	rows := s.ask(c, "XINFO", "consumers", args[1], args[2])
	if len(rows) == 0 {
		return false
	}
	c.WriteLen(len(rows))
	for _, row := range rows {
		fields, _ := row.([]any)
		c.WriteMapLen(len(fields) / 2)
		for i := 0; i+1 < len(fields); i += 2 {
			name, value := textOf(row, i), textOf(row, i+1)
			c.WriteBulk(name)
			if name == "name" {
				c.WriteBulk(value)
				continue
			}
			n, _ := strconv.Atoi(value)
			c.WriteInt(max(n, 0))
		}
	}
	return true
}

// textOf returns an element of a list in a reply.
func textOf(list any, at int) string {
	all, _ := list.([]any)
	if at >= len(all) {
		return ""
	}
	return fmt.Sprintf("%v", plainText(all[at]))
}

func plainText(v any) any {
	if b, is := v.([]byte); is {
		return string(b)
	}
	return v
}

// field returns a private field of a connection's state.
func field(c *mini.Peer, name string) reflect.Value {
	return Reachable(reflect.ValueOf(c.Ctx).Elem().FieldByName(name))
}

func inTransaction(c *mini.Peer) bool { return c.Ctx != nil && !field(c, "transaction").IsNil() }

// queueInfo queues INFO in a transaction.
func (s *Redis) queueInfo(c *mini.Peer) {
	queue := field(c, "transaction")
	queue.Set(reflect.Append(queue, reflect.MakeFunc(queue.Type().Elem(), func(args []reflect.Value) []reflect.Value {
		peer, _ := args[0].Interface().(*mini.Peer)
		s.mu.Lock()
		defer s.mu.Unlock()
		peer.WriteBulk(s.info())
		return nil
	})))
	c.WriteInline("QUEUED")
}

// growing are the commands of scripts that Redis refuses when it is out of memory.
var growing = []string{"XADD", "HSET", "HINCRBY", "SET", "SETBIT", "SETRANGE", "RPUSH", "LPUSH", "ZADD",
	"XGROUP CREATE"}

// refused reports whether a command in a script is refused, because memory is full. A script with flags may use more.
func (s *Redis) refused(c *mini.Peer, cmd string, args []string) bool {
	if cmd == "XGROUP" {
		cmd += " " + strings.ToUpper(args[0])
	}
	s.mu.Lock()
	full := s.full
	s.mu.Unlock()
	if !full || !slices.Contains(growing, cmd) || c.Ctx == nil {
		return false
	}
	sha := field(c, "nestedSHA").String()
	return sha != "" && !s.net.scripts.drains(sha)
}
