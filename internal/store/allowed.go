package store

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/redis/go-redis/v9"
)

// askAllowed asks Redis which commands the connection's user may run on a key. It runs none of these commands. Unlike
// ACL DRYRUN, it works without administrator rights. The script is not in package lua because it belongs to no shard
// and never writes.
const askAllowed = `
local denied = {}
for i = 2, #ARGV do
	local words = {}
	for word in string.gmatch(ARGV[i], '%S+') do
		words[#words + 1] = word == 'KEY' and ARGV[1] or word
	end
	if not redis.acl_check_cmd(unpack(words)) then
		denied[#denied + 1] = words[1]
	end
end
return denied`

// asked are the commands that Hongbao calls directly, outside its scripts. KEY is a placeholder for a key of the
// deployment.
var asked = []string{"INFO", "TIME", "EVALSHA 0 1 KEY", "EVAL 0 1 KEY", "SCRIPT LOAD x", "MULTI", "WAIT 0 0", "EXISTS KEY",
	"TYPE KEY", "HGETALL KEY", "HGET KEY f", "HMGET KEY f", "GETRANGE KEY 0 0", "XREADGROUP GROUP g c STREAMS KEY >",
	"XRANGE KEY - +", "XREVRANGE KEY + -", "XPENDING KEY g", "XINFO GROUPS KEY", "XINFO CONSUMERS KEY g", "XLEN KEY"}

var scriptCall = regexp.MustCompile(`redis\.call\('([A-Z]+)'`)

// needed returns every Redis command that Hongbao runs, in its scripts or directly, in the format of asked.
func needed() []string {
	special := map[string]string{"XREADGROUP": "", "XINFO": "", "TIME": "", "XGROUP": "XGROUP CREATE KEY g 0"}
	all := map[string]bool{}
	for _, s := range scripts {
		for _, m := range scriptCall.FindAllStringSubmatch(s.src, -1) {
			line, ok := special[m[1]]
			if !ok {
				line = m[1] + " KEY x y"
			}
			if line != "" {
				all[line] = true
			}
		}
	}
	for _, line := range asked {
		all[line] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// Denied returns the commands that Hongbao needs and that the connection's user may not run on the shard's keys. addr
// is the address of the shard's node, as in Server.Addr. Denied changes nothing.
func (k *Shard) Denied(ctx context.Context) (addr string, denied []string, err error) {
	node, err := k.Node(ctx)
	if err != nil {
		return "", nil, err
	}
	if one, ok := node.(*redis.Client); ok && node != k.rdb {
		addr = one.Options().Addr
	}
	args := []any{k.Keys.Meta()}
	for _, line := range needed() {
		args = append(args, line)
	}
	denied, err = node.Eval(ctx, askAllowed, nil, args...).StringSlice()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return addr, []string{"EVAL"}, nil
	}
	if err != nil {
		return addr, nil, fmt.Errorf("ask redis what the user may run: %w", Classify(err))
	}
	slices.Sort(denied)
	return addr, slices.Compact(denied), nil
}
