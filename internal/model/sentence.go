package model

import (
	"fmt"
	"strings"
	"time"
)

// Sentence is a sentence that the console shows in the language of its reader. Text is the English sentence with the
// verbs of fmt; the console's catalogues have it as a key. An argument may be a Sentence, too.
type Sentence struct {
	Text string
	Args []any
	// Original is a text that stays as it is, such as that of an error.
	Original string
}

// Say returns a sentence. The text must be a constant: a test finds the constants and looks for their translations.
func Say(text string, args ...any) Sentence { return Sentence{Text: text, Args: args} }

// Because returns a sentence with the text of an error.
func Because(err error, text string, args ...any) Sentence {
	return Sentence{Text: text, Args: args, Original: err.Error()}
}

// String returns the sentence in English.
func (s Sentence) String() string {
	text := fmt.Sprintf(s.Text, s.Args...)
	if s.Original != "" {
		text = strings.TrimSuffix(text, ".") + ": " + s.Original
	}
	return text
}

// Instant is a time in a sentence, in a time zone. Short leaves out the day and the zone.
type Instant struct {
	At    time.Time
	Zone  string
	Short bool
}

// String returns the time in English.
func (m Instant) String() string {
	zone, err := time.LoadLocation(m.Zone)
	if err != nil {
		zone = time.UTC
	}
	if m.Short {
		return m.At.In(zone).Format(time.TimeOnly)
	}
	return m.At.In(zone).Format(time.DateTime) + " (" + zone.String() + ")"
}
