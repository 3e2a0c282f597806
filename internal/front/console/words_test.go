package console

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// Each message that a template or the Go code of the pages uses has a Chinese text, with the same arguments. The
// catalogues have no other messages.
func TestEveryMessageHasBothLanguages(t *testing.T) {
	t.Parallel()
	used := map[string]string{} // a message, and where it is
	inTemplates(t, used)
	for _, folder := range []string{".", "../../ops/pages", "../../ops/campaigns", "../../ops", "../../ops/jobs", "../../ops/deliveries"} {
		inGo(t, folder, used)
	}
	for _, r := range access.Rules() {
		used[r.What] = "the table of actions"
	}
	require.Greater(t, len(used), 200)
	var chinese, ones map[string]string
	require.NoError(t, json.Unmarshal(chineseWords, &chinese))
	require.NoError(t, json.Unmarshal(englishOnes, &ones))
	var missing, unused []string
	for message, where := range used {
		if chinese[message] == "" {
			missing = append(missing, message+" ("+where+")")
		}
	}
	require.Empty(t, missing, "messages without a Chinese text")
	verb := regexp.MustCompile(`%(\[\d\])?[ds%]`)
	for message, text := range chinese {
		if used[message] == "" {
			unused = append(unused, message)
			continue
		}
		want, got := verb.FindAllString(message, -1), verb.FindAllString(text, -1)
		for i, v := range got {
			if _, numbered, _ := strings.Cut(v, "["); numbered != "" { // %[2]d stands for the second verb
				n, err := strconv.Atoi(numbered[:1])
				require.NoError(t, err)
				require.Equal(t, want[n-1], "%"+v[len(v)-1:], text)
				got[i] = want[n-1]
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, "%s: %s", message, text)
	}
	for message := range ones {
		if used[message] == "" {
			unused = append(unused, message)
		}
	}
	require.Empty(t, unused, "messages that no page uses")
}

// inTemplates adds the messages of the templates.
func inTemplates(t *testing.T, used map[string]string) {
	t.Helper()
	tongues, err := newTongues()
	require.NoError(t, err)
	for _, page := range tongues[0].pages.Templates() {
		if page.Tree == nil {
			continue
		}
		walk(page.Tree.Root, func(call *parse.CommandNode) {
			name, ok := call.Args[0].(*parse.IdentifierNode)
			if !ok || name.Ident != "t" && name.Ident != "h" || len(call.Args) == 1 {
				return
			}
			if text, ok := call.Args[1].(*parse.StringNode); ok {
				used[text.Text] = page.Name()
			}
		})
	}
}

// walk calls do for each command below a node of a template.
func walk(n parse.Node, do func(*parse.CommandNode)) {
	list := func(l *parse.ListNode) {
		if l != nil {
			for _, x := range l.Nodes {
				walk(x, do)
			}
		}
	}
	branch := func(b *parse.BranchNode) {
		walk(b.Pipe, do)
		list(b.List)
		list(b.ElseList)
	}
	switch x := n.(type) {
	case *parse.ListNode:
		list(x)
	case *parse.ActionNode:
		walk(x.Pipe, do)
	case *parse.TemplateNode:
		if x.Pipe != nil {
			walk(x.Pipe, do)
		}
	case *parse.IfNode:
		branch(&x.BranchNode)
	case *parse.RangeNode:
		branch(&x.BranchNode)
	case *parse.WithNode:
		branch(&x.BranchNode)
	case *parse.PipeNode:
		for _, c := range x.Cmds {
			do(c)
			for _, arg := range c.Args {
				walk(arg, do)
			}
		}
	}
}

// inGo adds the texts of model.Say, model.Because and model.Sentence in the Go files of a folder.
func inGo(t *testing.T, folder string, used map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.CallExpr:
				if s, ok := x.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Say" {
					used[constant(t, x.Args[0], path)] = path
				} else if ok && s.Sel.Name == "Because" {
					used[constant(t, x.Args[1], path)] = path
				}
			case *ast.CompositeLit:
				s, ok := x.Type.(*ast.SelectorExpr)
				if ok && s.Sel.Name == "Sentence" {
					for _, e := range x.Elts {
						if pair := e.(*ast.KeyValueExpr); pair.Key.(*ast.Ident).Name == "Text" {
							used[constant(t, pair.Value, path)] = path
						}
					}
				}
			}
			return true
		})
	}
}

// constant returns the value of a constant string.
func constant(t *testing.T, n ast.Expr, path string) string {
	t.Helper()
	switch x := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		require.NoError(t, err)
		return text
	case *ast.BinaryExpr:
		return constant(t, x.X, path) + constant(t, x.Y, path)
	}
	require.Fail(t, "a message is not a constant", path)
	return ""
}

// A template has no words of its own: all come from the catalogues, except names of products, codes and commands.
func TestTemplatesHaveNoWordsOfTheirOwn(t *testing.T) {
	t.Parallel()
	action := regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	kept := regexp.MustCompile(`(?s)<(code|script)[^>]*>.*?</(code|script)>`)
	spoken := regexp.MustCompile(`(aria-label|data-label|placeholder|alt|title)="([^"]*)"`)
	word := regexp.MustCompile(`[A-Za-z]{2,}`)
	require.NoError(t, fs.WalkDir(templateFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(templateFiles, path)
		require.NoError(t, err)
		text := kept.ReplaceAllString(action.ReplaceAllString(string(raw), ""), "")
		for _, a := range spoken.FindAllStringSubmatch(text, -1) {
			require.Empty(t, word.FindString(a[2]), "%s: %s", path, a[0])
		}
		text = strings.ReplaceAll(regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(text, " "), "&amp;", "")
		for _, product := range []string{"Hongbao"} {
			text = strings.ReplaceAll(text, product, "")
		}
		require.Empty(t, word.FindString(text), path)
		return nil
	}))
}

// A browser gets the language that it asks for, until a person chooses one.
func TestLanguageIsAskedForOrChosen(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	ask := func(header, cookie string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/login?to=%2Fsinks", nil)
		r.Header.Set("Accept-Language", header)
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: languageCookie, Value: cookie})
		}
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		return regexp.MustCompile(`<html lang="([^"]+)">`).FindStringSubmatch(w.Body.String())[1]
	}
	for header, want := range map[string]string{"": "en", "en-GB,zh;q=0.5": "en", "zh-CN,zh;q=0.9,en;q=0.8": "zh-CN", "zh": "zh-CN",
		"zh-TW": "zh-CN", "fr, zh;q=0.5": "zh-CN", "fr": "en", "x;;q=,": "en"} {
		require.Equal(t, want, ask(header, ""), header)
	}
	require.Equal(t, "en", ask("zh-CN", "en"))
	require.Equal(t, "zh-CN", ask("en", "zh-CN"))
	require.Equal(t, "en", ask("en", "tlh"))

	page := f.ask(t, "viewer", "/letters?sink=kafka", nil).Body.String()
	require.Contains(t, page, `<input type="hidden" name="to" value="/letters?sink=kafka">`)
	require.Contains(t, page, `value="zh-CN" lang="zh-CN">中文</button>`)
	w := f.ask(t, "", "/language", url.Values{"language": {"zh-CN"}, "to": {"/letters?sink=kafka"}})
	require.Equal(t, "/letters?sink=kafka", w.Header().Get("Location"))
	require.Equal(t, "zh-CN", w.Result().Cookies()[0].Value)
	require.True(t, w.Result().Cookies()[0].HttpOnly)
	w = f.ask(t, "", "/language", url.Values{"language": {"tlh"}, "to": {"//evil.example"}})
	require.Equal(t, "/", w.Header().Get("Location"))
	require.Empty(t, w.Result().Cookies())
}

// A sentence has its arguments in the words of the language, and one of something is no plural.
func TestSentences(t *testing.T) {
	t.Parallel()
	tongues, err := newTongues()
	require.NoError(t, err)
	english, chinese := tongues[0], tongues[1]
	say := func(in *tongue, text string, args ...any) string {
		out, err := in.say(text, args...)
		require.NoError(t, err)
		return out
	}
	require.Equal(t, "Decide 1 letter", say(english, "Decide %d letters", 1))
	require.Equal(t, "Decide 12,000 letters", say(english, "Decide %d letters", 12_000))
	require.Equal(t, "处理 12,000 条死信", say(chinese, "Decide %d letters", 12_000))
	require.Equal(t, "1.00 CNY", english.money(100, "CNY"))
	require.Equal(t, "1.00 元", chinese.money(100, "CNY"))
	markup, err := english.markup("%s, from %s", "<b>", code("<i>"))
	require.NoError(t, err)
	require.Equal(t, "&lt;b&gt;, from <code>&lt;i&gt;</code>", string(markup))
}
