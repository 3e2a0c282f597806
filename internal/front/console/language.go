package console

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/message/catalog"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// The catalogues. A key is an English sentence with the verbs of fmt. zh.json has the Chinese sentence of each key;
// en.json has the English sentence for one of something, where that differs.
var (
	//go:embed words/zh.json
	chineseWords []byte
	//go:embed words/en.json
	englishOnes []byte
)

// tongue is a language of the console: its words, and the pages in them. It is safe for concurrent use.
type tongue struct {
	Tag     string // the value of the attribute lang
	Name    string // in itself
	printer *message.Printer
	pages   *template.Template
}

// languages are the languages of the console. A browser that asks for none of them gets the first.
var (
	languages = []language.Tag{language.English, language.SimplifiedChinese}
	matcher   = language.NewMatcher(languages)
)

// newTongues parses the pages once for each language, in the order of languages.
func newTongues() ([]*tongue, error) {
	words, err := newCatalog()
	if err != nil {
		return nil, err
	}
	all := []*tongue{{Tag: "en", Name: "English"}, {Tag: "zh-CN", Name: "中文"}}
	for i, t := range all {
		t.printer = message.NewPrinter(languages[i], message.Catalog(words))
		if t.pages, err = template.New("").Funcs(t.functions()).ParseFS(templateFiles, "templates/*.html"); err != nil {
			return nil, hongbao.Errorf(hongbao.ClassBroken, "the console's pages: %w", err)
		}
	}
	return all, nil
}

// newCatalog fills a catalogue with the words of both languages.
func newCatalog() (*catalog.Builder, error) {
	all := catalog.NewBuilder(catalog.Fallback(language.English))
	var chinese, ones map[string]string
	if err := json.Unmarshal(chineseWords, &chinese); err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "the console's Chinese words: %w", err)
	}
	if err := json.Unmarshal(englishOnes, &ones); err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "the console's English words: %w", err)
	}
	for key, text := range chinese {
		if err := all.SetString(language.SimplifiedChinese, key, text); err != nil {
			return nil, hongbao.Errorf(hongbao.ClassBroken, "the console's Chinese words for %q: %w", key, err)
		}
	}
	for key, one := range ones {
		number := strings.Count(key[:strings.Index(key, "%d")], "%") + 1
		if err := all.Set(language.English, key, plural.Selectf(number, "%d", "=1", one, plural.Other, key)); err != nil {
			return nil, hongbao.Errorf(hongbao.ClassBroken, "the console's English words for %q: %w", key, err)
		}
	}
	return all, nil
}

// languageCookie is the cookie with the language that a person has chosen.
const languageCookie = "hongbao-language"

// tongueOf returns the language that a person has chosen, else the one that the browser asks for.
func (c *Console) tongueOf(r *http.Request) *tongue {
	if cookie, err := r.Cookie(languageCookie); err == nil {
		for _, t := range c.tongues {
			if t.Tag == cookie.Value {
				return t
			}
		}
	}
	asked, _, _ := language.ParseAcceptLanguage(r.Header.Get("Accept-Language")) // an error leaves the first language
	_, i, _ := matcher.Match(asked...)
	return c.tongues[i]
}

// choose sets the cookie with the chosen language, and shows the page again.
func (c *Console) choose(w http.ResponseWriter, r *http.Request) {
	for _, t := range c.tongues {
		if t.Tag == r.PostFormValue("language") {
			//nolint:gosec // Secure is set where the browser uses https; otherwise the listener is on loopback
			http.SetCookie(w, &http.Cookie{Name: languageCookie, Value: t.Tag, Path: "/", MaxAge: int(365 * 24 * time.Hour / time.Second),
				HttpOnly: true, Secure: c.secure(r), SameSite: http.SameSiteStrictMode})
		}
	}
	http.Redirect(w, r, local(r.PostFormValue("to")), http.StatusSeeOther) //nolint:gosec // local returns only paths of this site
}

// say returns a sentence in the language. The text is a key of the catalogues, or a Sentence. It writes times and
// durations for people.
func (t *tongue) say(text any, args ...any) (string, error) {
	switch x := text.(type) {
	case model.Sentence:
		return t.say(x.Text, x.Args...)
	case *model.Sentence:
		return t.say(x.Text, x.Args...)
	case string:
		all := make([]any, len(args))
		for i, arg := range args {
			var err error
			if all[i], err = t.word(arg); err != nil {
				return "", err
			}
		}
		return t.printer.Sprintf(x, all...), nil
	}
	return "", fmt.Errorf("%T is not a sentence", text)
}

// word returns an argument of a sentence as the sentence has it.
func (t *tongue) word(arg any) (any, error) {
	switch x := arg.(type) {
	case model.Sentence:
		return t.say(x)
	case when:
		return t.when(x), nil
	case model.Instant:
		return t.instant(x), nil
	case model.Sums:
		return t.sums(x), nil
	case time.Time:
		return t.clock(x), nil
	case time.Duration:
		return t.lasts(x), nil
	}
	return arg, nil
}

// markup is say for a sentence with markup: arguments of type template.HTML stay as they are.
func (t *tongue) markup(text any, args ...any) (template.HTML, error) {
	all := make([]any, len(args))
	if s, ok := text.(model.Sentence); ok {
		text, args = s.Text, s.Args
		all = make([]any, len(args))
	}
	for i, arg := range args {
		if x, ok := arg.(model.Instant); ok && !x.Short {
			arg = when{At: x.At, zone: x.Zone}
		}
		if at, ok := arg.(when); ok {
			all[i] = t.at(at)
			continue
		}
		word, err := t.word(arg)
		if err != nil {
			return "", err
		}
		if text, isText := word.(string); isText {
			word = template.HTMLEscapeString(text)
		}
		all[i] = word
	}
	s, err := t.say(text, all...)
	return template.HTML(s), err //nolint:gosec // the text is a constant of a template, and its arguments are escaped
}

// code returns a command or a code for markup.
func code(text ...any) template.HTML {
	return template.HTML("<code>" + template.HTMLEscapeString(fmt.Sprint(text...)) + "</code>") //nolint:gosec // it is escaped
}

// link returns a link to a path of the console for markup.
func link(path string, text any) template.HTML {
	return template.HTML(`<a href="` + template.HTMLEscapeString(path) + `">` + //nolint:gosec // it is escaped
		template.HTMLEscapeString(fmt.Sprint(text)) + "</a>")
}
