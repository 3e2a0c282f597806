package virtual

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Wire reads one connection's protocol, so that requests and answers have names.
type Wire interface {
	// request returns the names of the requests that begin in what the client sends.
	request(b []byte) (ops []string)
	// answer returns what the client gets for what the server sends, and calls note for each complete answer with the
	// name of its request, the answer's first word and its first line.
	answer(b []byte, note func(op, word, line string)) []byte
}

// Kafka is the wire of a connection to Kafka.
func Kafka() Wire { return &kafkaWire{} }

// HTTP is the wire of a connection to an HTTP server.
func HTTP() Wire { return httpWire{} }

// redisWire is the protocol of Redis.
type redisWire struct {
	scripts *scripts
	out, in []byte   // what is not complete yet
	asked   []string // requests without an answer
}

func (w *redisWire) request(b []byte) (ops []string) {
	w.out = append(w.out, b...)
	for {
		args, rest, ok := command(w.out)
		if !ok {
			return ops
		}
		op := w.scripts.op(args)
		w.out, w.asked, ops = rest, append(w.asked, op), append(ops, op)
	}
}

// command cuts the first command from b.
func command(b []byte) (args []string, rest []byte, ok bool) {
	line, rest, ok := cutLine(b)
	if !ok || len(line) == 0 || line[0] != '*' {
		return nil, nil, false
	}
	n, _ := strconv.Atoi(string(line[1:]))
	for range n {
		if line, rest, ok = cutLine(rest); !ok || len(line) == 0 {
			return nil, nil, false
		}
		size, _ := strconv.Atoi(string(line[1:]))
		if len(rest) < size+2 {
			return nil, nil, false
		}
		args, rest = append(args, string(rest[:size])), rest[size+2:]
	}
	return args, rest, true
}

func cutLine(b []byte) (line, rest []byte, ok bool) { return bytes.Cut(b, []byte("\r\n")) }

func (w *redisWire) answer(b []byte, note func(op, word, line string)) []byte {
	b = unwrap(b)
	w.in = append(w.in, b...)
	for len(w.asked) > 0 {
		word, rest, ok := reply(w.in)
		if !ok {
			break
		}
		line, _, _ := cutLine(w.in)
		note(w.asked[0], word, string(line))
		w.in, w.asked = rest, w.asked[1:]
	}
	return b
}

// The last id of a stream without entries, as miniredis and as Redis tell it.
var (
	noID   = []byte("$17\r\nlast-generated-id\r\n$0\r\n\r\n")
	zeroID = []byte("$17\r\nlast-generated-id\r\n$3\r\n0-0\r\n")
)

// inScript precedes each error in a script that miniredis runs. ofCommand matches what follows if it is a command's.
var (
	inScript  = []byte("-ERR Error compiling script (new function): ")
	ofCommand = regexp.MustCompile(`^:\d+: ([A-Z]+ )`)
)

// unwrap corrects where miniredis answers otherwise than Redis: it wraps an error that a command gave in a script, and a
// stream without entries has no last id.
func unwrap(b []byte) []byte {
	if !bytes.HasPrefix(b, []byte("-")) {
		return bytes.Replace(b, noID, zeroID, 1)
	}
	rest, is := bytes.CutPrefix(b, inScript)
	if at := ofCommand.FindSubmatchIndex(rest); is && at != nil {
		return append([]byte("-"), rest[at[2]:]...)
	}
	if is && bytes.HasPrefix(rest, []byte(":")) {
		return append([]byte("-ERR user_script"), rest...)
	}
	return b
}

// reply cuts the first reply from b, and returns its first word.
func reply(b []byte) (word string, rest []byte, ok bool) {
	line, rest, ok := cutLine(b)
	if !ok || len(line) == 0 {
		return "", nil, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch line[0] {
	case '-':
		return "-" + wordOf(string(line[1:])), rest, true
	case '$', '=':
		if n < 0 {
			return "nil", rest, true
		}
		if len(rest) < n+2 {
			return "", nil, false
		}
		return wordOf(string(rest[:n])), rest[n+2:], true
	case '*', '%', '~', '>':
		if line[0] == '%' {
			n *= 2
		}
		if n < 0 {
			return "nil", rest, true
		}
		word = "empty"
		for i := range n {
			var w string
			if w, rest, ok = reply(rest); !ok {
				return "", nil, false
			}
			if i == 0 {
				word = w
			}
		}
		return word, rest, true
	}
	if err == nil {
		return "number", rest, true
	}
	return wordOf(string(line[1:])), rest, true
}

// wordOf returns the first word of a text. All numbers are one word, and so are texts that begin with one.
func wordOf(text string) string {
	word := text
	if end := strings.IndexAny(text, " \t\r\n-"); end >= 0 {
		word = text[:end]
	}
	switch {
	case word == "":
		return "empty"
	case word[0] >= '0' && word[0] <= '9':
		return "number"
	}
	return word[:min(len(word), 24)]
}

// kafkaWire is the protocol of Kafka. The names of its answers are the requests' only.
type kafkaWire struct {
	out []byte
}

func (w *kafkaWire) request(b []byte) (ops []string) {
	w.out = append(w.out, b...)
	for len(w.out) >= 6 {
		size := int(binary.BigEndian.Uint32(w.out)) + 4
		if len(w.out) < size {
			return ops
		}
		op := "unknown"
		if r := kmsg.Key(int16(binary.BigEndian.Uint16(w.out[4:]))); r.Name() != "" {
			op = r.Name()
		}
		w.out, ops = w.out[size:], append(ops, op)
	}
	return ops
}

func (w *kafkaWire) answer(b []byte, _ func(op, word, line string)) []byte { return b }

// httpWire is HTTP/1.1. A request comes in one write.
type httpWire struct{}

func (httpWire) request(b []byte) []string {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if rest, is := bytes.CutPrefix(b, []byte(method+" ")); is {
			path, _, _ := bytes.Cut(rest, []byte(" "))
			return []string{method + " " + string(path[bytes.LastIndexByte(path, '/')+1:])}
		}
	}
	return nil
}

func (httpWire) answer(b []byte, _ func(op, word, line string)) []byte { return b }
