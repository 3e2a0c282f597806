package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// maxFirst is more than the size of any answer to a client's first request, which asks for the versions of the API or
// for the mechanisms of SASL. If the server sends text, its first four bytes read as a size give 512 MB or more, so
// this limit refuses them.
const maxFirst = 1 << 20

// headBytes are the size and the correlation id at the start of each answer.
const headBytes = 8

// conn checks the head of the first answer.
type conn struct {
	net.Conn
	address string
	id      []byte // correlation id of the first request, nil before it
	checked bool
	head    []byte // what Read has to return of the first answer's head
}

// Write implements net.Conn. A request begins with its size, the key of its API and the version.
func (c *conn) Write(b []byte) (int, error) {
	if c.id == nil && len(b) >= 12 {
		c.id = bytes.Clone(b[8:12])
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if !c.checked {
		head, err := c.first()
		if err != nil {
			return 0, err
		}
		c.head, c.checked = head, true
	}
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// first reads the head of the first answer. After an error the client closes the connection.
func (c *conn) first() ([]byte, error) {
	head := make([]byte, headBytes)
	n, err := io.ReadFull(c.Conn, head)
	head = head[:n]
	switch {
	case isAlert(head):
		return nil, fmt.Errorf("%s answers with an alert of TLS: set kafka.tls to true, or check the port in kafka.brokers",
			c.address)
	case n > 0 && err != nil, n == headBytes && !c.answers(head):
		return nil, fmt.Errorf("%s answers, but not as Kafka: its first bytes are %q; check the host and port in "+
			"kafka.brokers", c.address, head)
	case err != nil:
		return nil, fmt.Errorf("%s accepts connections, but does not answer as Kafka: %w; check kafka.brokers and "+
			"kafka.tls", c.address, err)
	}
	return head, nil
}

// answers reports whether head can be the head of an answer to the first request.
func (c *conn) answers(head []byte) bool {
	size := binary.BigEndian.Uint32(head)
	return size >= 4 && size <= maxFirst && (c.id == nil || bytes.Equal(c.id, head[4:]))
}

// isAlert reports whether head is the head of an alert of TLS 1.0 to 1.3: content type 21, version 3.x.
func isAlert(head []byte) bool {
	return len(head) >= 3 && head[0] == 21 && head[1] == 3 && head[2] <= 4
}
