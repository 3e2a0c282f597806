package stream

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao"
)

// Decision says which person decided something, and why. Both texts are stored with the result of the decision.
type Decision struct {
	By  string `json:"by"`
	Why string `json:"why"`
}

// ByWorker is Decision.By of the decisions that workers make themselves.
const ByWorker = "hongbao"

// MaxWhy is the maximum length of a reason, in characters.
const MaxWhy = 500

// Check returns an error if By is not a valid id, or if Why is no reason.
func (d Decision) Check() error {
	err := hongbao.CheckID(d.By)
	if err != nil {
		err = fmt.Errorf("who decides, %.140q: %w", d.By, err)
	}
	if wrong := CheckWhy(d.Why); wrong != nil {
		err = errors.Join(err, fmt.Errorf("the reason %w", wrong))
	}
	return err
}

// CheckWhy returns an error unless why is a reason: a text of 1 to MaxWhy characters on one line.
func CheckWhy(why string) error {
	if strings.TrimSpace(why) == "" {
		return errors.New("is required: it is stored with the decision")
	}
	return CheckText(why, MaxWhy)
}

// CheckText returns an error unless the text has at most this many characters, is UTF-8 and has no control characters.
func CheckText(text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Errorf("has %d characters, at most %d are allowed", n, most)
	}
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
		return errors.New("has control characters, such as a line break, or is not UTF-8")
	}
	return nil
}
