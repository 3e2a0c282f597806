package winners

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Store stores the filter at the home of its campaign, part by part. The head comes last, because readers ignore a
// filter without it.
func (f *Filter) Store(ctx context.Context, home store.Place) error {
	head, body := f.encode()
	p := store.FilterPart{Revision: f.revision, By: rand.Text()}
	for i := 0; i*partBytes < len(body); i++ {
		p.Name, p.Text = strconv.Itoa(i), body[i*partBytes:min((i+1)*partBytes, len(body))]
		if err := home.PutFilter(ctx, &p); err != nil {
			return err
		}
	}
	p.Name, p.Text = store.FilterHead, []byte(head)
	return home.PutFilter(ctx, &p)
}

// Fetch returns the filter of a campaign's revision from its home. It returns nil if there is no filter, or only one
// of a different generation. If the stored data is unusable, the error is Broken.
func Fetch(ctx context.Context, home store.Place, revision string) (*Filter, error) {
	text, found, err := home.FilterPart(ctx, store.FilterHead)
	if err != nil || !found {
		return nil, err
	}
	f, err := fetch(ctx, home, revision, text)
	if err == nil || hongbao.IsOutage(err) {
		return f, err
	}
	again, found, err1 := home.FilterPart(ctx, store.FilterHead)
	if err1 != nil || !found || again != text {
		return nil, err1 // replaced during the read: not an error
	}
	return nil, hongbao.Errorf(hongbao.ClassBroken, "the filter of the winners of campaign %s in %s can't be used: %w",
		home.Campaign, home.Keys.Filter(home.Campaign), err)
}

func fetch(ctx context.Context, home store.Place, revision, text string) (*Filter, error) {
	h, err := parseHead(text)
	if err != nil {
		return nil, err
	}
	if h.revision != revision {
		plan, _, _ := strings.Cut(revision, ".")
		if has, _, _ := strings.Cut(h.revision, "."); has != plan {
			return nil, fmt.Errorf("it is of plan %s, and the campaign has plan %s", has, plan)
		}
		return nil, nil
	}
	var body []byte
	for i := range h.parts() {
		part, found, err := home.FilterPart(ctx, strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("part %d is missing: %w", i, errDamaged)
		}
		body = append(body, part...)
	}
	return h.decode(body)
}
