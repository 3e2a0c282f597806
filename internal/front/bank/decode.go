package bank

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// read returns the body, which must be one JSON object. An error does not quote the body.
func read(w http.ResponseWriter, r *http.Request, most int64, list string, items int) (flatjson.Object, error) {
	return web.ReadObject(w, r, web.Body{Bytes: most, List: list, Items: items, TooMany: "too_many_credits",
		Incomplete: "nothing was booked; send it again"})
}

// checkNames returns an error if the object has other fields than names. The comparison is case-sensitive.
func checkNames(o flatjson.Object, names ...string) error {
	for name := range o {
		if !slices.Contains(names, name) {
			return web.Refuse("unknown_field",
				"it has an unknown field; the fields are "+strings.Join(names, ", "))
		}
	}
	return nil
}

// readKey reads the header Idempotency-Key. It accepts a quoted string, as in the IETF draft, and the bare text
// that many clients send.
func readKey(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 || values[0] == "" {
		return "", web.Refuse("idempotency_key_required",
			"send an Idempotency-Key; each retry must have the same key")
	}
	key := values[0]
	if len(key) > 1 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if err := hongbao.CheckID(key); err != nil || len(values) > 1 || strings.ContainsAny(key, `"\`) {
		return "", web.Refuse("idempotency_key_invalid",
			`one Idempotency-Key of 1 to 128 printable ASCII characters, without spaces, quotes and backslashes`)
	}
	return key, nil
}

// checkReference returns an error for a text that is no valid id. It also rejects "." and "..", because clients and
// proxies resolve them in a path.
func checkReference(text string) error {
	if text == "." || text == ".." {
		return errors.New(`"." and ".." are not allowed, because clients and proxies resolve them in a path`)
	}
	return hongbao.CheckID(text)
}

// readCredit reads the fields of one credit except its key.
func readCredit(o flatjson.Object) (payment.Credit, error) {
	var c payment.Credit
	for _, f := range []struct {
		name  string
		dest  *string
		check func(string) error
	}{
		{"reference", &c.Reference, checkReference}, {"account", &c.Account, hongbao.CheckID}, {"currency", &c.Currency,
			hongbao.CheckCurrency},
	} {
		text, ok := o.Text(f.name)
		if !ok || f.check(text) != nil {
			return c, web.Refuse(f.name+"_invalid",
				"want a text in "+f.name+": ids are 1 to 128 printable ASCII "+
					"characters without spaces, a reference is not . or .., a currency is three capital letters")
		}
		*f.dest = text
	}
	amount, err := o.Integer("amount", int64(hongbao.MaxAmount))
	switch {
	case errors.Is(err, flatjson.ErrNotInteger):
		return c, web.Refuse("amount_not_integer_minor_units",
			"want an integer in minor units, without quotes, point or exponent")
	case err != nil:
		return c, web.Refuse("amount_out_of_range", fmt.Sprintf("want an amount of 1 to %d",
			hongbao.MaxAmount))
	}
	c.Amount = hongbao.Amount(amount)
	return c, nil
}
