package configs

import (
	"maps"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// IsTaken reports whether a name is that of a sink which every deployment may have.
func IsTaken(sink string) bool { return sink == SinkBalance || sink == SinkKafka }

// IsOwn reports whether a sink of deployment.sinks is one of the user's own.
func (c *Config) IsOwn(sink string) bool { return c.has(sink) && c.Own[sink] != nil }

// ProgramOf returns the knob own.*.program of a sink of the user's own, and "" for any other sink.
func (c *Config) ProgramOf(sink string) string {
	if !c.IsOwn(sink) {
		return ""
	}
	return c.Own[sink].Program
}

// Opened returns the sinks of deployment.sinks that this program can open, in their order there.
func (c *Config) Opened() []string {
	return slices.DeleteFunc(slices.Clone(c.Deployment.Sinks), func(sink string) bool {
		return c.IsOwn(sink) && c.Handlers[sink] == nil
	})
}

// OpenOwn returns the function that opens a sink of the user's own. The error says which program can open it, if this
// one can't.
func (c *Config) OpenOwn(sink string) (OpenHandler, error) {
	if open := c.Handlers[sink]; open != nil {
		return open, nil
	}
	return nil, hongbao.Errorf(hongbao.ClassBroken, "sink %s is delivered by %s, and this program can't open it: give the command "+
		"to that program; docs/sinks.md", sink, c.Own[sink].Program)
}

// checkSinks compares deployment.sinks with the sections of single sinks.
func (l *loader) checkSinks(c *Config) {
	l.checkWebhooks(c)
	for _, name := range slices.Sorted(maps.Keys(c.Own)) {
		l.checkOwn(c, name)
	}
	if !l.p.fine("deployment.sinks") {
		return
	}
	for _, sink := range c.Deployment.Sinks {
		if IsTaken(sink) || c.Webhooks[sink] != nil || c.Own[sink] != nil {
			continue
		}
		all := slices.Concat([]string{SinkBalance, SinkKafka}, slices.Sorted(maps.Keys(c.Webhooks)), slices.Sorted(maps.Keys(c.Own)))
		l.bad("deployment.sinks", "%.40q does not exist: want %s, or a name for which webhook.%.40[1]s.url or own.%.40[1]s.program is "+
			"set%[3]s", sink, strings.Join(all, ", "), knob.Hint(sink, all))
	}
}

func (l *loader) checkOwn(c *Config, name string) {
	section := own + "." + name
	l.checkAttempts(section+".max_attempts", &c.Own[name].Sink)
	switch program := section + ".program"; {
	case !l.checkName(c, section, name):
	case c.Webhooks[name] != nil:
		l.p.contradict(section, l.firstSource(section), "webhook.%s has the same name: choose another one", name)
	case l.p.fine(program) && c.Own[name].Program == "":
		l.bad(program, "it is empty: name the program that delivers to this sink, and who runs it")
	}
}

// checkName checks the name of a sink in a starred section. It reports whether the name is valid.
func (l *loader) checkName(c *Config, section, name string) bool {
	switch {
	case IsTaken(name):
		l.p.contradict(section, l.firstSource(section), "the name %s is that of another sink: choose another one", name)
	case l.p.fine("deployment.sinks") && !c.has(name):
		l.p.contradict(section, l.firstSource(section), "deployment.sinks does not name it: add %s there, or remove the "+
			"settings of this sink", name)
	default:
		return true
	}
	return false
}

// firstSource returns where the first setting of a section was set, by name.
func (l *loader) firstSource(section string) string {
	for _, name := range slices.Sorted(maps.Keys(l.sources)) {
		if strings.HasPrefix(name, section+".") {
			return l.sources[name]
		}
	}
	return ""
}
