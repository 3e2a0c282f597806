package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// slowBank is a remote that answers each request after remoteTakes, by repeating the credit. It shares the cores with
// the measured sinks, so it parses only what it needs: HTTP from two net/http clients on kept-alive connections.
type slowBank struct {
	listener net.Listener
	url      string
	booked   atomic.Int64
	conns    sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
	closed   bool
}

func startSlowBank() (*slowBank, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the remote: %w", err)
	}
	b := &slowBank{listener: l, url: "http://" + l.Addr().String(), open: map[net.Conn]bool{}}
	b.conns.Go(b.accept)
	return b, nil
}

func (b *slowBank) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil || !b.keep(conn) {
			return
		}
		b.conns.Go(func() {
			defer b.drop(conn)
			b.serve(conn)
		})
	}
}

// keep registers a connection, so that close can end it. It returns false if the bank is already closed.
func (b *slowBank) keep(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = conn.Close()
		return false
	}
	b.open[conn] = true
	return true
}

func (b *slowBank) drop(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, conn)
	_ = conn.Close()
}

func (b *slowBank) close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for conn := range b.open {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.conns.Wait()
	return err
}

// serve answers the requests on one connection until the connection ends.
func (b *slowBank) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	takes := time.NewTimer(remoteTakes)
	defer takes.Stop()
	var out []byte
	for {
		many, body, err := readRequest(r)
		if err != nil {
			return
		}
		takes.Reset(remoteTakes)
		status, credits := http.StatusCreated, 1
		if many {
			if body, credits, err = results(body); err != nil {
				return
			}
			status = http.StatusOK
		}
		<-takes.C
		b.booked.Add(int64(credits))
		out = append(out[:0], "HTTP/1.1 "...)
		out = strconv.AppendInt(out, int64(status), 10)
		out = append(out, " Booked\r\nContent-Type: application/json\r\nContent-Length: "...)
		out = strconv.AppendInt(out, int64(len(body)), 10)
		out = append(append(out, "\r\n\r\n"...), body...)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// readRequest returns the body of the next request, and reports whether it went to the batch endpoint.
func readRequest(r *bufio.Reader) (many bool, body []byte, err error) {
	length := -1
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return false, nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if n == 0 {
			many = bytes.Contains(line, []byte(":batch "))
		} else if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return false, nil, fmt.Errorf("the length of a request: %w", err)
			}
		}
	}
	if length < 0 {
		return false, nil, errors.New("a request without a length")
	}
	body = make([]byte, length)
	_, err = io.ReadFull(r, body)
	return many, body, err
}

// results returns the answer to a batch of credits.
func results(body []byte) ([]byte, int, error) {
	var in struct{ Credits []map[string]any }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, 0, fmt.Errorf("read a batch: %w", err)
	}
	for _, c := range in.Credits {
		c["status"] = http.StatusOK
	}
	out, err := json.Marshal(map[string]any{"results": in.Credits})
	return out, len(in.Credits), err
}
