package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// maxFile is the maximum size of a configuration file, in bytes.
const maxFile = 1 << 20

// readFile reads at most limit bytes of a regular file. It refuses pipes, devices and folders.
func readFile(path string, limit int64) ([]byte, os.FileInfo, error) {
	before, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() { // opening a pipe would block permanently
		return nil, nil, fmt.Errorf("open %s: it is not a plain file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("read %s: it is larger than %d bytes", path, limit)
	}
	return data, info, err
}

// yamlFile reads the configuration file. It is stricter than decoding into a struct. It names the line of every
// problem, refuses ambiguous values, and keeps each value as the user wrote it.
type yamlFile struct {
	loader *loader
	path   string
	lines  map[string]int // the line of each key
}

// read sets the knobs with valid values, and adds a problem for everything else.
func (f *yamlFile) read(data []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // the file is empty or has only comments
	case err != nil:
		f.loader.p.add("", f.path, "it is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	f.mapping("", doc.Content[0])
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		f.loader.p.add("", f.path, "something follows the first document: write one document only, without a line ---")
	}
}

func (f *yamlFile) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", f.path, n.Line) }

// mapping reads a YAML map: the whole document or one section.
func (f *yamlFile) mapping(prefix string, node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return // a section whose keys are all commented out
	}
	if node.Kind != yaml.MappingNode || node.Anchor != "" {
		f.loader.p.add(strings.TrimSuffix(prefix, "."), f.at(node),
			"want keys with values here, one a line, as \"name: value\"")
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		if line, twice := f.lines[name]; twice {
			f.loader.p.add(name, f.at(key), "it is in line %d already: remove one of the two", line)
			continue
		}
		f.lines[name] = key.Line
		switch k := find(name); {
		case k != nil:
			if text, ok := f.scalar(k, value); ok {
				f.loader.public(k, f.at(value), text)
			}
		case prefix == "" && sectionIndex(name) >= 0:
			f.mapping(name+".", value)
		case inStarred(prefix) && knob.IsSink(key.Value):
			f.mapping(name+".", value)
		case inStarred(prefix):
			f.loader.p.add(name, f.at(key), "a sink can't have this name: want 1 to 32 of a-z 0-9, a letter first")
		default:
			f.reportUnknownKey(name, key, value)
		}
	}
}

// inStarred reports whether the keys after a prefix are names of sinks.
func inStarred(prefix string) bool { return slices.Contains(starred, strings.TrimSuffix(prefix, ".")) }

func (f *yamlFile) reportUnknownKey(name string, key, value *yaml.Node) {
	if base, ok := strings.CutSuffix(name, "_file"); ok {
		if k := find(base); k != nil && k.Secret != "" {
			f.loader.p.add(name, f.at(key), "it is not for this file: set %s in the environment", k.Env()+fileSuffix)
			return
		}
	}
	if why := Moved(name); why != "" {
		f.loader.p.add(name, f.at(key), "%s", why)
		return
	}
	candidates := names()
	if value.Kind == yaml.MappingNode {
		candidates = nil
		for _, s := range sections {
			candidates = append(candidates, s.name)
		}
	} else if parts := strings.Split(name, "."); slices.Contains(starred, parts[0]) {
		for i := range candidates {
			candidates[i] = strings.Replace(candidates[i], star, parts[1], 1)
		}
	}
	f.loader.p.add(name, f.at(key), "there is no such key%s", knob.Hint(name, candidates))
}

// scalar returns a value exactly as it is written in the file. It joins the items of a list with commas.
func (f *yamlFile) scalar(k *entry, node *yaml.Node) (string, bool) {
	wrong := func(format string, args ...any) (string, bool) {
		f.loader.p.add(k.Name, f.at(node), format, args...)
		return "", false
	}
	switch {
	case node.Anchor != "" || node.Kind == yaml.AliasNode || node.Style&yaml.TaggedStyle != 0:
		return wrong("anchors, aliases and tags are refused: write the value itself")
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return wrong("there is no value: set one, or remove the key for the default")
	case node.Kind == yaml.ScalarNode:
		return node.Value, true
	case node.Kind != yaml.SequenceNode || k.Kind() != "list":
		return wrong("want one value of type %s", k.Kind())
	}
	var items []string
	for _, n := range node.Content {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || strings.Contains(n.Value, ",") {
			return wrong("want a list of plain texts without commas")
		}
		items = append(items, n.Value)
	}
	if slices.Contains(items, "") {
		return wrong("an item is empty")
	}
	return strings.Join(items, ","), true
}
