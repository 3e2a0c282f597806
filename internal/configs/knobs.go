package configs

import (
	_ "embed"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// sections are the sections in the order of the reference, with their descriptions.
var sections = []struct{ name, doc string }{
	{"deployment", "Settings that must be the same in all processes of a deployment."},
	{"redis", "How processes connect to Redis."},
	{"ledger", "How processes connect to the ledger's database."},
	{"settlement", "Where grants are settled."},
	{"remote", "A remote balance system, and what it supports. Used only if settlement.kind is remote; " +
		"see docs/remote-balance.md."},
	{"balance", "The server `hongbao balance`. Used by that command only."},
	{"serve", "The server `hongbao serve`; see docs/http.md. Used by that command only."},
	{"control", "The administration API and the console: `hongbao control` and `hongbao serve --control`; see docs/administration.md. " +
		"Used by these commands only."},
	{"work", "The worker `hongbao work`. Used by that command only."},
	{"ops", "Settings of the ops listeners of serve, control, work and balance; see docs/metrics.md."},
	{"console", "The pages of the console; see docs/console.md. Used by `hongbao control` and `hongbao serve --control` only."},
	{"audit", "The audit, by `hongbao audit` or from the console; see docs/audit.md."},
	{"kafka", "How processes connect to Kafka, and the topic. Not used if kafka is not among deployment.sinks."},
	{"publisher", "How workers publish grants to the topic."},
	{"campaign", "How campaigns are loaded, how their plans are cached, and when they leave Redis."},
	{"producer", "How servers decide grabs in Redis."},
	{"consumer", "How workers deliver events to the sinks. Section sinks has the settings of single sinks."},
	{"sinks", "Settings of the sinks balance and kafka."},
	{"webhook", "Sinks that post each grant to a URL; see docs/webhooks.md. The star is the sink's name, which deployment.sinks " +
		"names, too. These knobs have no flags. In a variable the name is in capitals: HONGBAO_WEBHOOK_CRM_URL."},
	{"own", "Sinks of your own, to which a program of yours delivers; see docs/sinks.md. The star is the sink's name, which " +
		"deployment.sinks names, too. These knobs have no flags. In a variable the name is in capitals: HONGBAO_OWN_POINTS_PROGRAM."},
	{"trimmer", "How workers delete finished events from the streams in Redis."},
	{"tracing", "Traces of single grabs, by OpenTelemetry; see docs/tracing.md."},
	{"log", "What a process logs."},
	{"unsafe", "Checks that only log a warning when they fail. Each of them can cost money."},
}

// docs has the description of each knob, one line per knob: the name and its sentences. The command go generate takes
// the sentences from the comments of the fields.
//
//go:embed docs.txt
var docs string

// knobs are the knobs of every field of Config, section by section. In each section the common knobs come first.
var knobs = collect()

// entry is a knob with its description.
type entry struct {
	knob.Knob
	doc string
	// sink is the name of the sink that the knob belongs to, if its section is one of starred. It is a star in the
	// description of all such sinks' knobs, and empty for every other knob.
	sink string
}

// star stands for the name of a sink in the names of its knobs.
const star = "*"

// The sections that have the same knobs for each of several sinks.
const (
	webhooks = "webhook"
	own      = "own"
)

var starred = []string{webhooks, own}

// of returns the struct in c that has the knob's field. It adds the sink that the knob belongs to.
func (k *entry) of(c *Config) any {
	switch {
	case k.sink == "":
		return c
	case k.Section() == own:
		return sinkOf(&c.Own, k.sink)
	}
	return sinkOf(&c.Webhooks, k.sink)
}

func sinkOf[T any](all *map[string]*T, sink string) *T {
	if *all == nil {
		*all = map[string]*T{}
	}
	if (*all)[sink] == nil {
		(*all)[sink] = new(knob.Defaults[T]())
	}
	return (*all)[sink]
}

// named returns a knob of all sinks of its section as the knob of one.
func (k *entry) named(sink string) *entry {
	one := *k
	one.Name, one.sink = strings.Replace(k.Name, star, sink, 1), sink
	return &one
}

func collect() (all []entry) {
	sentences := map[string]string{}
	for line := range strings.Lines(docs) {
		name, doc, _ := strings.Cut(strings.TrimSpace(line), " ")
		sentences[name] = doc
	}
	add := func(config reflect.Type, sink string) {
		for _, k := range knob.Of(config) {
			if k.Name == "unsafe.allow" {
				k.Choices = unsafeNames()
			}
			if k.Name != "" {
				all = append(all, entry{k, sentences[k.Name], sink})
			}
		}
	}
	add(reflect.TypeFor[Config](), "")
	add(reflect.TypeFor[Webhook](), star)
	add(reflect.TypeFor[Own](), star)
	slices.SortStableFunc(all, func(a, b entry) int {
		if s := sectionIndex(a.Section()) - sectionIndex(b.Section()); s != 0 || a.Common == b.Common {
			return s
		}
		if a.Common {
			return -1
		}
		return 1
	})
	return all
}

func sectionIndex(name string) int {
	return slices.IndexFunc(sections, func(s struct{ name, doc string }) bool { return s.name == name })
}

// find returns the knob of a name, or nil. The name of a sink's knob has the sink's name in place of the star.
func find(name string) *entry {
	parts := strings.Split(name, ".")
	if len(parts) == 3 && slices.Contains(starred, parts[0]) && knob.IsSink(parts[1]) {
		if k := findBy(func(k *entry) bool { return k.Name == parts[0]+"."+star+"."+parts[2] }); k != nil {
			return k.named(parts[1])
		}
		return nil
	}
	return findBy(func(k *entry) bool { return k.Name == name && k.sink == "" })
}

// findEnv returns the knob of a variable, or nil.
func findEnv(name string) *entry {
	for _, section := range starred {
		if rest, ok := strings.CutPrefix(name, knob.EnvPrefix+strings.ToUpper(section)+"_"); ok {
			sink, key, _ := strings.Cut(strings.ToLower(rest), "_")
			if strings.ToUpper(rest) != rest {
				return nil
			}
			return find(section + "." + sink + "." + key)
		}
	}
	return findBy(func(k *entry) bool { return k.Env() == name })
}

func findBy(is func(*entry) bool) *entry {
	for i := range knobs {
		if is(&knobs[i]) {
			return &knobs[i]
		}
	}
	return nil
}

func names() []string {
	all := make([]string, len(knobs))
	for i := range knobs {
		all[i] = knobs[i].Name
	}
	return all
}

func envNames() []string {
	var all []string
	for i := range knobs {
		all = append(all, knobs[i].Env())
		if knobs[i].Secret != "" {
			all = append(all, knobs[i].Env()+fileSuffix)
		}
	}
	return all
}

// serviceLink matches the variables that Kubernetes sets in each pod for a service named hongbao or hongbao-...
var serviceLink = regexp.MustCompile(
	`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?$`)

// foreign reports whether a variable with Hongbao's prefix is valid although it is not a knob.
func foreign(name string) bool {
	switch name {
	case PathEnv, ServerEnv, KeyFileEnv, ServerCAEnv,
		knob.EnvPrefix + "KAFKA_DIR", knob.EnvPrefix + "KAFKA_VERSION": // only scripts/setup.sh uses these two
		return true
	}
	return serviceLink.MatchString(name)
}

// AddFlags defines a flag for each knob, except for the knobs of starred sections. Load checks the values together with
// those of all other sources. Flags for secrets are hidden; they exist only so that Load can explain where secrets belong.
func AddFlags(flags *pflag.FlagSet) {
	for i := range knobs {
		k := &knobs[i]
		if k.sink != "" {
			continue // a flag has one name
		}
		f := flags.VarPF(&flagValue{kind: k.Kind()}, k.Name, "", k.usage())
		f.DefValue = k.Default
		f.Hidden = k.Secret == "always"
		if k.Kind() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// usage returns the description of a knob in the help text. The library pflag adds the default.
func (k *entry) usage() string {
	s := strings.ReplaceAll(k.doc, "`", "'") // pflag would read backquotes as the name of the value
	if k.Choices != nil {
		s += " (" + strings.Join(k.Choices, ", ") + ")"
	}
	return s
}

// flagValue is a pflag.Value that accepts any text. A flag for a list may be repeated.
type flagValue struct{ text, kind string }

func (v *flagValue) String() string { return v.text }

// Type returns the type that the help shows for the value.
func (v *flagValue) Type() string { return v.kind }

// Set stores the text. If a flag is repeated, the last value wins, but the parts of a list are joined.
func (v *flagValue) Set(text string) error {
	if v.kind == "list" && v.text != "" {
		text = v.text + "," + text
	}
	v.text = text
	return nil
}
