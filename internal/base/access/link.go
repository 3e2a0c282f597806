package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"
)

// linkLen is the length of a link's text. No session has this length.
const linkLen = 52

// StartLink stores a link, which belongs to a key and ends with it, at the latest at ends. The returned text opens it, and
// is not stored anywhere. The caller has checked that the key may share the campaign.
func (a *Authority) StartLink(ctx context.Context, key string, link Session, ends time.Time) (text string, s Session, err error) {
	l, err := a.current(ctx, func(l *list) bool { return l.keys[key] != nil })
	if err != nil {
		return "", s, err
	}
	k := l.keys[key]
	if k == nil {
		return "", s, refused(ErrUnauthorized)
	}
	text = rand.Text() + rand.Text()
	s = link
	s.Hash, s.Key, s.SecretHash, s.Begun, s.Expires = Hash(text), key, k.Hash, time.Now(), ends
	err = a.change(ctx, func(ctx context.Context) error { return a.source.AddSession(ctx, s) },
		func(l *list) { l.sessions[s.Hash] = s })
	if err != nil {
		return "", s, fmt.Errorf("store a link: %w", err)
	}
	return text, s, nil
}

// Link returns the caller that has a link: a viewer of its campaign, who may read that and do nothing else. It returns the
// same errors as Identify.
func (a *Authority) Link(ctx context.Context, text string) (Caller, error) {
	if len(text) != linkLen {
		return Caller{}, refused(ErrUnauthorized)
	}
	var link Session
	who, err := a.caller(ctx, func(l *list) *Key {
		s, k := l.session(text)
		if s.Campaign == "" {
			return nil
		}
		link = s
		return k
	})
	if err != nil {
		return Caller{}, err
	}
	return Caller{Key: who.Key, Role: RoleViewer, Campaigns: []string{link.Campaign}, Expires: link.Expires, Link: &link}, nil
}

// Links returns the live links to a campaign, the newest first.
func (a *Authority) Links(ctx context.Context, campaign string) ([]Session, error) {
	l, err := a.current(ctx, func(*list) bool { return true })
	if err != nil {
		return nil, err
	}
	links := slices.DeleteFunc(slices.Collect(maps.Values(l.sessions)), func(s Session) bool {
		return s.Campaign != campaign || l.owner(s) == nil
	})
	slices.SortFunc(links, func(a, b Session) int { return b.Begun.Compare(a.Begun) })
	return links, nil
}

// EndLink ends a link by its hash. Other replicas accept it for up to 10 more seconds.
func (a *Authority) EndLink(ctx context.Context, hash string) error { return a.end(ctx, hash) }
