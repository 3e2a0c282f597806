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
	{"work", "The worker `hongbao work`. Used by that command only."},
	{"ops", "Settings of the ops listeners of serve, work and balance; see docs/metrics.md."},
	{"console", "The pages of `hongbao serve`; see docs/console.md. Used by that command only."},
	{"audit", "The audit, by `hongbao audit` or from the console; see docs/audit.md."},
	{"kafka", "How processes connect to Kafka, and the topic. Not used if kafka is not among deployment.sinks."},
	{"publisher", "How workers publish grants to the topic."},
	{"campaign", "How campaigns are loaded, how their plans are cached, and when they leave Redis."},
	{"producer", "How servers decide grabs in Redis."},
	{"consumer", "How workers deliver events to the sinks. Section sinks has the settings of single sinks."},
	{"sinks", "Settings of the sinks balance and kafka."},
	{"webhook", "Sinks that post each grant to a URL; see docs/webhooks.md. The star is the sink's name, which deployment.sinks " +
		"names, too. These knobs have no flags. In a variable the name is in capitals: HONGBAO_WEBHOOK_CRM_URL."},
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
	// webhook is the name of the webhook that the knob belongs to. It is a star in the description of all webhooks'
	// knobs, and empty for every other knob.
	webhook string
}

// star stands for the name of a webhook in the names of its knobs.
const star = "*"

// of returns the struct in c that has the knob's field. It adds the webhook that the knob belongs to.
func (k *entry) of(c *Config) any {
	if k.webhook == "" {
		return c
	}
	w := c.Webhooks[k.webhook]
	if w == nil {
		w = new(knob.Defaults[Webhook]())
		if c.Webhooks == nil {
			c.Webhooks = map[string]*Webhook{}
		}
		c.Webhooks[k.webhook] = w
	}
	return w
}

// named returns a knob of all webhooks as the knob of one.
func (k *entry) named(webhook string) *entry {
	one := *k
	one.Name, one.webhook = strings.Replace(k.Name, star, webhook, 1), webhook
	return &one
}

func collect() (all []entry) {
	sentences := map[string]string{}
	for line := range strings.Lines(docs) {
		name, doc, _ := strings.Cut(strings.TrimSpace(line), " ")
		sentences[name] = doc
	}
	add := func(config reflect.Type, webhook string) {
		for _, k := range knob.Of(config) {
			if k.Name == "unsafe.allow" {
				k.Choices = unsafeNames()
			}
			if k.Name != "" {
				all = append(all, entry{k, sentences[k.Name], webhook})
			}
		}
	}
	add(reflect.TypeFor[Config](), "")
	add(reflect.TypeFor[Webhook](), star)
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

// find returns the knob of a name, or nil. The name of a webhook's knob has the webhook's name in place of the star.
func find(name string) *entry {
	parts := strings.Split(name, ".")
	if len(parts) == 3 && parts[0] == webhooks && knob.IsSink(parts[1]) {
		if k := findBy(func(k *entry) bool { return k.Name == webhooks+"."+star+"."+parts[2] }); k != nil {
			return k.named(parts[1])
		}
		return nil
	}
	return findBy(func(k *entry) bool { return k.Name == name && k.webhook == "" })
}

// findEnv returns the knob of a variable, or nil.
func findEnv(name string) *entry {
	if rest, ok := strings.CutPrefix(name, webhooksEnv); ok {
		sink, key, _ := strings.Cut(strings.ToLower(rest), "_")
		if strings.ToUpper(rest) != rest {
			return nil
		}
		return find(webhooks + "." + sink + "." + key)
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

// webhooks is the section of the webhooks, and webhooksEnv the prefix of its variables.
const (
	webhooks    = "webhook"
	webhooksEnv = knob.EnvPrefix + "WEBHOOK_"
)

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

// AddFlags defines a flag for each knob, except for the knobs of webhooks. Load checks the values together with those of
// all other sources. Flags for secrets are hidden; they exist only so that Load can explain where secrets belong.
func AddFlags(flags *pflag.FlagSet) {
	for i := range knobs {
		k := &knobs[i]
		if k.webhook != "" {
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
