package configs

import (
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

func find(name string) *knob {
	for i := range knobs {
		if knobs[i].name == name {
			return &knobs[i]
		}
	}
	return nil
}

func findEnv(name string) *knob {
	for i := range knobs {
		if knobs[i].env() == name {
			return &knobs[i]
		}
	}
	return nil
}

func isSection(name string) bool {
	for _, s := range sections {
		if s.name == name {
			return true
		}
	}
	return false
}

func names() []string {
	all := make([]string, len(knobs))
	for i := range knobs {
		all[i] = knobs[i].name
	}
	return all
}

func envNames() []string {
	var all []string
	for i := range knobs {
		all = append(all, knobs[i].env())
		if knobs[i].secret != public {
			all = append(all, knobs[i].env()+fileSuffix)
		}
	}
	return all
}

// serviceLink matches what Kubernetes puts into each pod for a service named hongbao or hongbao-...
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?$`)

// foreign tells whether a variable that begins as ours is not a knob and no mistake either.
func foreign(name string) bool {
	switch name {
	case PathEnv, envPrefix + "KAFKA_DIR", envPrefix + "KAFKA_VERSION": // the last two are scripts/setup.sh's
		return true
	}
	return serviceLink.MatchString(name)
}

// AddFlags defines a flag for each knob, named as it is. A value is checked by Load, together with everything else.
// Secrets have a hidden flag, so that Load can say where they belong.
func AddFlags(flags *pflag.FlagSet) {
	for i := range knobs {
		k := &knobs[i]
		f := flags.VarPF(&flagValue{kind: k.kind()}, k.name, "", k.usage())
		f.DefValue = k.def
		f.Hidden = k.secret == alwaysSecret
		if k.kind() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// usage is the knob's line in the help; pflag adds the default.
func (k *knob) usage() string {
	s := strings.ReplaceAll(k.doc, "`", "'") // pflag reads backquotes as the name of the value
	if k.choices != nil {
		s += " (" + strings.Join(k.choices, ", ") + ")"
	}
	return s
}

// flagValue is a pflag.Value that takes any text. A list may be given in parts.
type flagValue struct{ text, kind string }

func (v *flagValue) String() string { return v.text }

// Type is what the help shows for the value.
func (v *flagValue) Type() string { return v.kind }

// Set notes the text. The flag's last value wins, but the parts of a list add up.
func (v *flagValue) Set(text string) error {
	if v.kind == "list" && v.text != "" {
		text = v.text + "," + text
	}
	v.text = text
	return nil
}
