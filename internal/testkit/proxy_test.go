package testkit

import (
	"bytes"
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/dev/proxy"
)

// through returns a client that connects to a Redis through a proxy.
func through(t *testing.T, r *RedisServer, p *proxy.Proxy) *redis.Client {
	t.Helper()
	opts := r.Options()
	opts.Addr = p.Addr
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestProxySwallowsTheAnswerOfWorkThatWasDone(t *testing.T) {
	needsServer(t)
	r := Redis(t)
	p := NewProxy(t, r.Addr)
	c, key := through(t, r, p), Prefix(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	p.SwallowAnswers(1, func(request []byte) bool { return bytes.Contains(request, []byte("incr")) })
	require.NoError(t, c.Ping(t.Context()).Err(), "it does not match")
	require.Error(t, c.Incr(t.Context(), key).Err())
	require.Equal(t, proxy.Faults{Swallowed: 1}, p.Fired())
	require.Equal(t, "1", r.Client(t).Get(t.Context(), key).Val(), "the server did it")
	require.EqualValues(t, 2, c.Incr(t.Context(), key).Val(), "one answer only")
}

// If the client gives up before the server answers, no answer was dropped, so SwallowAnswers drops the answer to the
// next request.
func TestProxyKeepsAnOrderWhoseClientGaveUp(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	p := NewProxy(t, server.Addr().String())
	p.SwallowAnswers(1, func(request []byte) bool { return string(request[:4]) == "ping" })
	ask := func() (client, asked net.Conn) {
		client, err := net.Dial("tcp", p.Addr)
		require.NoError(t, err)
		asked, err = server.Accept()
		require.NoError(t, err)
		for _, c := range []net.Conn{client, asked} {
			require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		}
		_, err = client.Write([]byte("ping"))
		require.NoError(t, err)
		_, err = io.ReadFull(asked, make([]byte, 4))
		require.NoError(t, err)
		return client, asked
	}
	client, asked := ask()
	require.NoError(t, client.Close())
	_, err = asked.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the server sees that the client has closed the connection")
	require.NoError(t, asked.Close())
	require.Equal(t, proxy.Faults{}, p.Fired())
	client, asked = ask()
	defer client.Close()
	defer asked.Close()
	_, err = asked.Write([]byte("pong"))
	require.NoError(t, err)
	_, err = client.Read(make([]byte, 4))
	require.Error(t, err, "this answer is lost")
	require.Equal(t, proxy.Faults{Swallowed: 1}, p.Fired())
}

func TestProxySwallowsEveryPieceOfAnAnswer(t *testing.T) {
	needsServer(t)
	m := NewMariaDB(t, MariaDBOptions{})
	name := m.Database(t)
	p := NewProxy(t, m.Addr)
	direct := openMariaDB(t, m.DSN(name))
	db := openMariaDB(t, mariadbUser+"@tcp("+p.Addr+")/"+name+"?multiStatements=true")
	_, err := db.ExecContext(t.Context(), "CREATE TABLE x (n int)")
	require.NoError(t, err)
	p.SwallowWholeAnswers(1, func(request []byte) bool { return bytes.HasSuffix(request, []byte("COMMIT")) },
		MySQLAnswered)
	_, err = db.ExecContext(t.Context(),
		"BEGIN; INSERT INTO x VALUES (1); DO SLEEP(0.2); INSERT INTO x VALUES (2); COMMIT")
	require.Error(t, err)
	require.Equal(t, proxy.Faults{Swallowed: 1}, p.Fired())
	var n int
	require.NoError(t, direct.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM x").Scan(&n))
	require.Equal(t, 2, n, "the server has executed all statements")
}

func TestMySQLAnsweredReadsStatusAndErrors(t *testing.T) {
	last := []byte{7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}
	more := []byte{7, 0, 0, 1, 0, 1, 0, 0x0a, 0, 0, 0}
	many := []byte{9, 0, 0, 1, 0, 0xfc, 0xff, 0xff, 0, 2, 0, 0, 0} // 65535 rows were affected
	refused := []byte{9, 0, 0, 2, 0xff, 0x48, 0x04, '#', '4', '2', '0', '0', '0'}
	for _, answer := range [][]byte{last, many, refused, append(bytes.Clone(more), last...),
		append(bytes.Clone(more), refused...)} {
		require.True(t, MySQLAnswered(answer), "%v", answer)
		require.False(t, MySQLAnswered(answer[:len(answer)-1]), "%v", answer)
	}
	require.False(t, MySQLAnswered(nil))
	require.False(t, MySQLAnswered(more))
}

func TestProxyCutsAndRefuses(t *testing.T) {
	needsServer(t)
	r := Redis(t)
	p := NewProxy(t, r.Addr)
	c := through(t, r, p)
	require.NoError(t, c.Ping(t.Context()).Err())
	p.Refuse(true)
	require.NoError(t, c.Ping(t.Context()).Err(), "the existing connection still works")
	p.CutAll()
	require.Error(t, c.Ping(t.Context()).Err())
	require.Error(t, c.Ping(t.Context()).Err(), "the first ping may fail on the closed connection, the second one reconnects")
	fired := p.Fired()
	require.Equal(t, 1, fired.Cut)
	require.Positive(t, fired.Refused)
	p.Refuse(false)
	EventuallyOK(t, 30*time.Second, func() error { return c.Ping(t.Context()).Err() }, "it connects again")
}

func TestProxyDelays(t *testing.T) {
	needsServer(t)
	r := Redis(t)
	p := NewProxy(t, r.Addr)
	c := through(t, r, p)
	require.NoError(t, c.Ping(t.Context()).Err())
	p.Delay(100 * time.Millisecond)
	began := time.Now()
	require.NoError(t, c.Ping(t.Context()).Err())
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	require.Equal(t, proxy.Faults{Delayed: 1}, p.Fired())
	p.Delay(0)
	require.NoError(t, c.Ping(t.Context()).Err())
	require.Equal(t, proxy.Faults{Delayed: 1}, p.Fired())
}

func TestProxyWithoutAServerResets(t *testing.T) {
	ports, err := freePorts(1)
	require.NoError(t, err)
	p := NewProxy(t, loopback(ports[0]))
	c, err := net.Dial("tcp", p.Addr)
	if err == nil { // otherwise the connection was reset before Dial returned
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Second)))
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Equal(t, proxy.Faults{}, p.Fired())
}

func TestProxyCloseEndsItsConnections(t *testing.T) {
	needsServer(t)
	r := Redis(t)
	p, err := proxy.Start(r.Addr)
	require.NoError(t, err)
	c := through(t, r, p)
	require.NoError(t, c.Ping(t.Context()).Err())
	require.NoError(t, p.Close())
	require.Error(t, c.Ping(t.Context()).Err())
	require.NoError(t, p.Close(), "a second close does nothing")
}

func TestKafkaProduceAnswerSwallowedOnTheBrokersOwnProxy(t *testing.T) {
	needsServer(t)
	b := NewKafka(t, KafkaOptions{Proxied: true})
	topic := b.Topic(t, 1, nil)
	swallowOneProduce(t, b, b.Proxy, topic, transport(t, nil), b.Proxy.Addr)
}

func TestKafkaProduceAnswerSwallowedOnTheSharedBrokerByDial(t *testing.T) {
	needsServer(t)
	b := Kafka(t)
	p := NewProxy(t, b.Addr)
	swallowOneProduce(t, b, p, b.Topic(t, 1, nil), transport(t, p), b.Addr)
}

func swallowOneProduce(t *testing.T, b *KafkaBroker, p *proxy.Proxy, topic string, tr *kafka.Transport, addr string) {
	t.Helper()
	require.NoError(t, produce(t.Context(), tr, addr, topic))
	p.SwallowAnswers(1, proxy.KafkaRequest(proxy.KafkaProduce))
	require.Error(t, produce(t.Context(), tr, addr, topic))
	require.Equal(t, proxy.Faults{Swallowed: 1}, p.Fired())
	require.EqualValues(t, 2, lastOffset(t, b, topic), "the broker has stored the record whose answer was dropped")
	require.NoError(t, produce(t.Context(), tr, addr, topic))
	require.EqualValues(t, 3, lastOffset(t, b, topic))
}

// transport returns a transport that connects through p, unless p is nil. It is closed when the test ends.
func transport(t *testing.T, p *proxy.Proxy) *kafka.Transport {
	t.Helper()
	tr := &kafka.Transport{}
	if p != nil {
		tr.Dial = p.Dial
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// produce sends one record to partition 0, without retries.
func produce(ctx context.Context, tr *kafka.Transport, addr, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := &kafka.Client{Addr: kafka.TCP(addr), Transport: tr}
	res, err := c.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("v"))}),
	})
	if err != nil {
		return err
	}
	return res.Error
}

func lastOffset(t *testing.T, b *KafkaBroker, topic string) int64 {
	t.Helper()
	c := &kafka.Client{Addr: kafka.TCP(b.Addr), Transport: transport(t, nil)}
	res, err := c.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}},
	})
	require.NoError(t, err)
	require.NoError(t, res.Topics[topic][0].Error)
	return res.Topics[topic][0].LastOffset
}

func TestKafkaRequestReadsHeads(t *testing.T) {
	t.Parallel()
	head := func(size, key, version, id int16) []byte {
		return []byte{0, 0, byte(size >> 8), byte(size), byte(key >> 8), byte(key), byte(version >> 8), byte(version),
			0, 0, 0, 1, byte(id >> 8), byte(id)}
	}
	fetch, first := head(10, proxy.KafkaFetch, 4, 0), head(1000, proxy.KafkaProduce, 9, 7)
	for _, c := range []struct {
		name    string
		request []byte
		want    bool
	}{
		{"whole", head(10, proxy.KafkaProduce, 9, -1), true},
		{"beginning of a long one", first, true},
		{"another kind", fetch, false},
		{"second in a piece", append(bytes.Clone(fetch), first...), true},
		{"zeros inside a long one", make([]byte, 64), false},
		{"too short", first[:13], false},
		{"absurd version", head(10, proxy.KafkaProduce, 900, 0), false},
	} {
		require.Equal(t, c.want, proxy.KafkaRequest(proxy.KafkaProduce)(c.request), c.name)
	}
}
