package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Each script is called while one field of a hash is missing. It either fails and changes nothing, or has the same
// reply and effect as with the field.
func TestScriptsOnMissingFields(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	deleted := 0
	t.Run("scripts", func(t *testing.T) {
		for name, c := range scriptCases() {
			t.Run(name, func(t *testing.T) {
				b := setup(t)
				c.setup(t, b)
				replies := &replies{}
				b.rdb.AddHook(replies)
				deleted += c.withoutEachField(t, b, replies)
				_ = c.call(t.Context(), b) // from here on each call is a repeat, which some scripts refuse
				deleted += c.withoutEachField(t, b, replies)
			})
		}
	})
	require.Greater(t, deleted, 100, "the test deleted the fields")
}

// withoutEachField repeats the call for each field of each hash in the script's KEYS, with that field deleted. It
// restores the keys afterwards.
func (c *scriptCase) withoutEachField(t *testing.T, b *bundle, replies *replies) (deleted int) {
	t.Helper()
	begin := b.dump(t)
	_ = c.call(t.Context(), b) // loads the script in a pipeline, whose replies the hook does not record
	b.restore(t, begin)
	wantErr := c.call(t.Context(), b)
	wantReply, want := replies.last, b.content(t, timeless)
	for _, key := range c.keys(b) {
		if anyFields.MatchString(key) {
			continue
		}
		b.restore(t, begin)
		if kind := b.rdb.Type(t.Context(), key).Val(); kind != "hash" {
			continue
		}
		fields, err := b.rdb.HKeys(t.Context(), key).Result()
		require.NoError(t, err)
		for _, field := range fields {
			if key == b.k.Keys.Meta() && slices.Contains([]string{"seq", "epoch", "opened"}, field) {
				continue // without them the guard freezes the shard
			}
			if key == b.k.Keys.Witnesses() {
				continue // witness.lua says so: the process waits again until its line is on disk
			}
			if field == "withheld_last" {
				continue // a place whose whole rest is withheld has none; without it packets are withheld again
			}
			deleted++
			b.restore(t, begin)
			require.NoError(t, b.rdb.HDel(t.Context(), key, field).Err())
			before := b.content(t, fmt.Sprint)
			err := c.call(t.Context(), b)
			if err != nil && wantErr == nil {
				require.Equal(t, before, b.content(t, fmt.Sprint), "%s without %s: %v", key, field, err)
				continue
			}
			require.Equal(t, wantErr, err, "%s without %s", key, field)
			if !c.ages {
				require.Equal(t, wantReply, replies.last, "%s without %s", key, field)
			}
			require.Equal(t, without(want, key, field), without(b.content(t, timeless), key, field), "%s without %s", key, field)
		}
	}
	b.restore(t, begin)
	return deleted
}

// anyFields matches the hashes in which no single field is required.
var anyFields = regexp.MustCompile(`:(receipts|answers|codes|counters:\w+|claims:\w+|sink:\w+(:campaigns)?|controls)$`)

// restore sets all keys of the deployment to the values that dump returned.
func (b *bundle) restore(t *testing.T, keys map[string]string) {
	t.Helper()
	now := b.dump(t)
	_, err := b.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		for key := range now {
			p.Del(t.Context(), key)
		}
		for key, value := range keys {
			p.Restore(t.Context(), key, 0, value)
		}
		return nil
	})
	require.NoError(t, err)
}

// instants matches times and ids of stream entries, which differ between two otherwise equal calls.
var instants = regexp.MustCompile(`[0-9]{7,}(-[0-9]+)?`)

func timeless(v ...any) string { return instants.ReplaceAllString(fmt.Sprint(v...), "T") }

// content returns every key of the deployment in comparable form; a hash becomes a map of its fields. DUMP would not
// be comparable: it returns the fields of a large hash in no certain order.
func (b *bundle) content(t *testing.T, words func(...any) string) map[string]any {
	t.Helper()
	all, err := b.rdb.Keys(t.Context(), b.store.Space().Prefix+":*").Result()
	require.NoError(t, err)
	out := map[string]any{}
	for _, key := range all {
		switch kind := b.rdb.Type(t.Context(), key).Val(); kind {
		case "hash":
			fields := b.rdb.HGetAll(t.Context(), key).Val()
			for f := range fields {
				fields[f] = words(fields[f])
			}
			out[key] = fields
		case "stream":
			out[key] = words(b.rdb.XRange(t.Context(), key, "-", "+").Val()) +
				words(b.rdb.XInfoStreamFull(t.Context(), key, 100).Val().Groups)
		case "list":
			out[key] = words(b.rdb.LRange(t.Context(), key, 0, -1).Val())
		case "zset":
			out[key] = words(b.rdb.ZRange(t.Context(), key, 0, -1).Val())
		case "string":
			out[key] = fmt.Sprintf("%x", sha256.Sum256([]byte(words(b.rdb.Get(t.Context(), key).Val()))))
		default:
			require.Fail(t, "a key of another type", "%s is a %s", key, kind)
		}
	}
	return out
}

func without(content map[string]any, key, field string) map[string]any {
	out := maps.Clone(content)
	if fields, ok := out[key].(map[string]string); ok {
		fields = maps.Clone(fields)
		delete(fields, field)
		if out[key] = fields; len(fields) == 0 {
			delete(out, key) // so does Redis
		}
	}
	return out
}

// replies is a hook that keeps the last reply of a script.
type replies struct{ last string }

func (*replies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*replies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *replies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if script, ok := cmd.(interface{ Val() any }); ok && strings.HasPrefix(cmd.Name(), "eval") {
			r.last = timeless(script.Val())
		}
		return err
	}
}
