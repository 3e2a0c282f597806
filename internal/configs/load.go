package configs

import (
	"fmt"
	"strings"

	"github.com/knadh/koanf/maps"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// PathEnv is the variable that may name the configuration file; it is the caller's, Load does not look at it.
const PathEnv = envPrefix + "CONFIG"

const (
	envPrefix  = "HONGBAO_"
	fileSuffix = "_FILE"
	separator  = "."
)

// Load merges the defaults, the YAML file at path (none if it is empty), env (as os.Environ gives it) and the flags
// that AddFlags defined and somebody set (nil for none); later ones win. A variable that is set to nothing counts as
// not set. The error holds an *Error with every problem, also of values that a later source overrides; its class is
// Broken.
func Load(path string, env []string, flags *pflag.FlagSet) (*Config, error) {
	l := newLoader()
	l.file(path)
	l.environment(env)
	l.commandLine(flags)
	c := l.fill()
	l.check(c)
	c.pairs = l.pairs
	if err := l.p.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// loader is one Load: koanf merges texts by name, the loader remembers whence each came and what was wrong.
type loader struct {
	merged  *koanf.Koanf
	sources map[string]string
	p       problems
	pairs   []*keyPair
}

// newLoader has the defaults.
func newLoader() *loader {
	l := &loader{merged: koanf.New(separator), sources: map[string]string{}}
	defaults := map[string]any{}
	for i := range knobs {
		if knobs[i].def != "" {
			defaults[knobs[i].name] = knobs[i].def
		}
	}
	l.load(confmap.Provider(defaults, separator), nil)
	return l
}

func (l *loader) load(p koanf.Provider, parser koanf.Parser) {
	if err := l.merged.Load(p, parser); err != nil {
		l.p.add("", "", "the values can't be merged: %v", err)
	}
}

func (l *loader) file(path string) {
	if path == "" {
		return
	}
	data, _, err := readFile(path, maxFile)
	if err != nil {
		l.p.add("", "", "the configuration file can't be read: %v: name another with --config or "+PathEnv, err)
		return
	}
	l.load(rawbytes.Provider(data), &yamlFile{loader: l, path: path})
}

// accept checks a value of the file or the command line, where secrets must not be, and notes its source.
func (l *loader) accept(k *knob, source, text string) bool {
	mend := fmt.Sprintf("set %s in the environment, or %s to the path of a file with it that only its owner can read",
		k.env(), k.env()+fileSuffix)
	switch {
	case k.secret == alwaysSecret:
		l.p.add(k.name, source, "a secret must not stand here, where others can read it: remove it, change it, and %s", mend)
	case k.secret == maybeSecret && holdsPassword(text):
		l.p.add(k.name, source, "it holds a password, which must not stand here, where others can read it: remove it, "+
			"change it, and %s", mend)
	default:
		return l.take(k, source, text)
	}
	return false
}

// take checks a value and notes its source.
func (l *loader) take(k *knob, source, text string) bool {
	if err := k.set(&Config{}, text); err != nil {
		l.p.add(k.name, source, "%v", err)
		return false
	}
	l.sources[k.name] = source
	return true
}

func (l *loader) environment(environ []string) {
	given := map[string]bool{}
	for _, pair := range environ {
		if name, value, _ := strings.Cut(pair, "="); value != "" {
			given[name] = true
		}
	}
	l.load(env.Provider(separator, env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if value == "" || foreign(name) {
				return "", nil
			}
			return l.variable(name, value, given)
		},
	}), nil)
}

// variable reads one variable of the environment; the empty name leaves it out.
func (l *loader) variable(name, value string, given map[string]bool) (string, any) {
	source := "environment " + name
	k := findEnv(name)
	if k == nil {
		base, isFile := strings.CutSuffix(name, fileSuffix)
		if k = findEnv(base); !isFile || k == nil || k.secret == public {
			l.p.add("", source, "there is no such setting%s", hint(name, envNames()))
			return "", nil
		}
		if given[base] {
			l.p.add(k.name, source, "%s is set too: unset one of the two", base)
			return "", nil
		}
		secret, wrong := readSecret(value)
		if wrong != "" {
			l.p.add(k.name, source, "%s", wrong)
			return "", nil
		}
		value = secret
	}
	if !l.take(k, source, value) {
		return "", nil
	}
	return k.name, value
}

func (l *loader) commandLine(flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	l.load(posflag.ProviderWithFlag(flags, separator, nil, func(f *pflag.Flag) (string, any) {
		k := find(f.Name)
		if k == nil || !f.Changed || !l.accept(k, "flag --"+f.Name, f.Value.String()) {
			return "", nil
		}
		return k.name, f.Value.String()
	}), nil)
}

// fill makes the Config of the merged values, which were all checked when they came.
func (l *loader) fill() *Config {
	c := &Config{}
	for i := range knobs {
		k := &knobs[i]
		if l.merged.Exists(k.name) {
			if err := k.set(c, l.merged.String(k.name)); err != nil {
				l.bad(k.name, "%v", err)
			}
		}
		c.settings = append(c.settings, Setting{Name: k.name, Value: k.format(c), Source: l.source(k.name)})
	}
	return c
}

func nest(flat map[string]any) map[string]any { return maps.Unflatten(flat, separator) }
