package configs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// PathEnv is the variable that names the configuration file. Load does not read it; its caller does.
const PathEnv = knob.EnvPrefix + "CONFIG"

// The variables of the flags --server, --key-file and --server-ca: the server to call instead of the stores, the file
// with an API key for that server, and the file with its CA. Load does not read these; the command line does.
const (
	ServerEnv   = knob.EnvPrefix + "SERVER"
	KeyFileEnv  = knob.EnvPrefix + "KEY_FILE"
	ServerCAEnv = knob.EnvPrefix + "SERVER_CA"
)

const fileSuffix = "_FILE"

// Load merges four sources, of which later ones win: the defaults, the YAML file at path, env and flags. If path is
// empty, there is no file. The list env has the form of os.Environ; an empty variable counts as not set. The set flags
// comes from AddFlags and may be nil; Load reads only the flags that the user set. The error contains an *Error with
// every problem, including problems with values that a later source overrides. The error's class is Broken.
func Load(path string, env []string, flags *pflag.FlagSet) (*Config, error) {
	l := newLoader()
	l.file(path)
	l.environment(env)
	l.commandLine(flags)
	c := l.fill()
	l.check(c)
	c.watched, c.pairs, c.authorities = l.watched, l.pairs, l.authorities
	if err := l.p.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// loader is the state of one Load. The maps values and sources contain the text and the place of each knob that the
// user has set.
type loader struct {
	values, sources map[string]string
	p               problems
	watched         []logSetter
	pairs           map[string]keyPair // by the knobs of their certificates
	authorities     map[string]*watched[x509.CertPool]
}

func newLoader() *loader {
	return &loader{values: map[string]string{}, sources: map[string]string{}, pairs: map[string]keyPair{},
		authorities: map[string]*watched[x509.CertPool]{}}
}

func (l *loader) file(path string) {
	if path == "" {
		return
	}
	data, _, err := readFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; `hongbao dev` removes the file of its deployment when it ends: then start it again, or unset %s",
			err, PathEnv)
	}
	if err != nil {
		l.p.add("", "", "the configuration file can't be read: %v: name another with --config or "+PathEnv, err)
		return
	}
	(&yamlFile{loader: l, path: path, lines: map[string]int{}}).read(data)
}

// public sets a knob from the file or from the command line. It refuses secrets, because others can read these sources.
func (l *loader) public(k *entry, source, text string) {
	fix := fmt.Sprintf("set %s in the environment, or %s to the path of a file with it that only its owner can read",
		k.Env(), k.Env()+fileSuffix)
	switch {
	case k.Secret == "always":
		l.p.add(k.Name, source, "a secret must not be here, where others can read it: remove it, change it, and %s", fix)
	case k.Secret == "password" && holdsPassword(text):
		l.p.add(k.Name, source, "it contains a password, which must not be here, where others can read it: remove it, "+
			"change it, and %s", fix)
	default:
		l.set(k, source, text)
	}
}

// set checks a value and stores it with its source.
func (l *loader) set(k *entry, source, text string) {
	if err := k.Set(k.of(&Config{}), text); err != nil {
		l.p.add(k.Name, source, "%v", err)
		return
	}
	l.values[k.Name], l.sources[k.Name] = text, source
}

func (l *loader) environment(environ []string) {
	given := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && strings.HasPrefix(name, knob.EnvPrefix) && !foreign(name) {
			given[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		l.variable(name, given)
	}
}

func (l *loader) variable(name string, given map[string]string) {
	source := "environment " + name
	if k := findEnv(name); k != nil {
		l.set(k, source, given[name])
		return
	}
	base, isFile := strings.CutSuffix(name, fileSuffix)
	k := findEnv(base)
	if !isFile || k == nil || k.Secret == "" {
		if why := movedEnv(name); why != "" {
			l.p.add("", source, "%s", why)
			return
		}
		l.p.add("", source, "there is no such setting%s", knob.Hint(name, envNames()))
		return
	}
	if _, both := given[base]; both {
		l.p.add(k.Name, source, "%s is set too: unset one of the two", base)
		return
	}
	secret, wrong := readSecret(given[name])
	if wrong != "" {
		l.p.add(k.Name, source, "%s", wrong)
		return
	}
	l.set(k, source, secret)
}

func (l *loader) commandLine(flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	flags.Visit(func(f *pflag.Flag) {
		if k := find(f.Name); k != nil {
			l.public(k, "flag --"+f.Name, f.Value.String())
		}
	})
}

// fill returns the Config with the defaults and the merged values. It ignores errors, because set has already checked
// the values.
func (l *loader) fill() *Config {
	c := knob.Defaults[Config]()
	set := func(k *entry) {
		if text, ok := l.values[k.Name]; ok {
			_ = k.Set(k.of(&c), text)
		}
		c.settings = append(c.settings, Setting{Name: k.Name, Value: k.Text(k.of(&c)), Source: l.source(k.Name)})
	}
	for i := range knobs {
		if knobs[i].sink == "" {
			set(&knobs[i])
		}
	}
	for _, section := range starred {
		for _, sink := range l.named(section) {
			for i := range knobs {
				if knobs[i].sink == star && knobs[i].Section() == section {
					set(knobs[i].named(sink))
				}
			}
		}
	}
	return &c
}

// named returns the names of a section's sinks of which the user has set a knob, sorted.
func (l *loader) named(section string) (names []string) {
	for name := range l.values {
		if k := find(name); k.sink != "" && k.Section() == section && !slices.Contains(names, k.sink) {
			names = append(names, k.sink)
		}
	}
	slices.Sort(names)
	return names
}
