package knob

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type inner struct {
	On   bool   `knob:",common" default:"true"`
	File string `knob:"_file"`
}

type config struct {
	Anything func()
	Wait     time.Duration `knob:"a.wait" default:"5s" want:"1ms to 1h"`
	Number   int64         `default:"7" want:"2 to 1_000 things"` // for programs only
	Kind     string        `knob:"a.kind,common" default:"x" want:"x, y"`
	Hosts    []string      `knob:"a.hosts" default:"h:1,h:2" form:"address"`
	Password string        `knob:"a.password" secret:"always"`
	TLS      inner         `knob:"a.tls"`
}

func TestTags(t *testing.T) {
	t.Parallel()
	c := Defaults[config]()
	require.Equal(t, config{Wait: 5 * time.Second, Number: 7, Kind: "x", Hosts: []string{"h:1", "h:2"},
		TLS: inner{On: true}}, c)
	require.Empty(t, Check(&c))
	kinds := map[string]string{}
	for _, k := range Of(reflect.TypeFor[config]()) {
		kinds[k.Name] = k.Kind()
	}
	require.Equal(t, map[string]string{"a.wait": "duration", "": "integer", "a.kind": "choice", "a.hosts": "list",
		"a.password": "secret", "a.tls": "bool", "a.tls_file": "text"}, kinds)
	c.Password = "hunter2"
	for _, k := range Of(reflect.TypeFor[config]()) {
		require.NotContains(t, k.Text(&c), "hunter2")
	}
}

func TestCheckNamesEveryProblem(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, err := range Check(&config{Wait: time.Microsecond, Number: 1001, Kind: "z", Hosts: []string{"h:1", "h"}}) {
		texts = append(texts, err.Error())
	}
	require.Equal(t, []string{"Wait is 1µs: want 1ms to 1h", "Number is 1001: want 2 to 1000",
		`Kind "z" does not exist: want x, y; did you mean x?`,
		`Hosts[1] "h": want host:port, as 10.0.0.7:6379 or [::1]:6379`}, texts)
}
